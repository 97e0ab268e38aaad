// Package orders reads order files in the format of the public Online Retail
// data set and plans the tasks that they ask for.
//
// [NewReader] takes a CSV file, compressed or not, and hands out one [Line]
// after the other. It holds one record in memory, never the file. A line that
// cannot be used is a [*LineError] and the next call goes on behind it: files of
// this kind come from exports and clerks, and one bad line out of half a million
// is no reason to do nothing.
//
// [Plan] turns the lines into jobs for the queue as they come.
package orders
