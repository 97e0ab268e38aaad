// Package queuetest runs guarded tasks in a test, in memory: no Redis, no
// server, no waiting.
//
// A [Worker] runs handlers as a fleet of workers would. A task passes the checks of the client and
// goes through JSON. Tasks of one resource run one at a time. The context has the task's id, and a
// fencing token that rises. A test can end a lease by [Worker.Lose]. A [Recorder] stands in for a
// queue.Client and keeps what was enqueued.
package queuetest
