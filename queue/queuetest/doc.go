// Package queuetest runs guarded tasks in a test, in memory: no Redis, no
// server, no waiting.
//
// A [Worker] runs handlers as a fleet of workers would: after the checks of the
// client, through JSON, one at a time per resource, under a context with the
// task's id and a rising fencing token, and it can lose a lease on demand. A
// [Recorder] stands in for a queue.Client and keeps what was enqueued.
package queuetest
