// Package orders reads order files in the format of the public Online Retail data set, and plans
// their tasks.
//
// [Unpack] returns the text of a CSV file, compressed or not, and a [Reader] of it one [Line] after the
// other. A reader holds one record in memory, never the file. A bad line is a [*LineError], and the
// next call goes on behind it.
//
// A [Plan] turns the lines into jobs for the queue as they come.
package orders
