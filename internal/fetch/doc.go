// Package fetch decides when an idle server asks Redis for tasks. It holds the server's dequeues
// back until a queue is notified. It also keeps the tasks that were prefetched for the server.
//
// A [Fetcher] is a state machine, and the [Notifier] of its process listens for it. Neither knows how a
// task is dequeued: they are given a [Scan].
package fetch
