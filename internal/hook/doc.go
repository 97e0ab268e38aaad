// Package hook changes asynq's calls on their way to Redis, so that its tasks can wait for locks.
//
// A [Hook] sits on the Redis connection that asynq's server uses. It knows asynq's script calls by
// the SHA1 of their text, as one set. After the first script that is not the known asynq's, the
// hook still changes two calls. They are the one that ends an attempt which waits to be parked, and
// the entry of a server. See [Hook.Mismatched]. Until then the hook changes these calls, and all
// others pass through:
//
//   - A dequeue is sent as our own script, which does the same. The script also stamps the
//     task with the attempt's name, wipes the marks of earlier parking and, with a
//     [Locking], takes the task's lock.
//   - The retry or archive call of an attempt that waits to be parked is sent as
//     park.lua: active -> retry. That counts nothing and archives nothing.
//   - Every other acknowledgement is sent with a condition in front of asynq's own
//     script: the attempt is still the task's latest. So the call can safely be sent
//     again, which asynq tries with a context that has ended. A task that a shutdown
//     requeues keeps its ticket. For an attempt that a [Finish] has ended, no
//     acknowledgement is sent.
//   - A result that a handler writes is kept only while its attempt lasts.
//   - The list of expired leases, for which asynq's own recovery asks, lacks the tasks that a
//     [Hook.Tolerate] hides.
//   - A script that may put tasks into pending is sent so that it also notifies the
//     queue, once for each. A [NotifyingConn] does the same for asynq's clients.
//   - The entry that a server writes about itself every few seconds also says that the server
//     is guarded. The hook knows the call by its keys. [asynqredis.Servers] reads the entry.
//
// [Hook.Server] has a fetcher answer a server's dequeues. While a hook is shut ([Hook.Shut]), the
// hook sends no dequeue.
//
// A [Finish] ends an attempt whose handler has succeeded. In the same step it takes the next task. The
// server's fetcher keeps that task until a dequeue takes it.
package hook
