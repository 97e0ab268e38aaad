// Package compare runs tasks as teams do without Siding: on plain asynq servers, with a plain lock
// on Redis. A [Way] is one setup. A [Record] has what the handlers of one way did. [Least] and
// [Starts] say how fast the same tasks could be if nothing but the work took time.
package compare
