// Package asynqredis is the one place that knows how asynq keeps its tasks in
// Redis: its keys, its scripts, and the moves between its sets that asynq itself
// has no call for.
//
// A [Hook] sits on the Redis connection that asynq's server uses. It knows
// asynq's script calls by the SHA1 of their text, as one set. From the first
// script on that is another one, it changes no call any more but the one
// that ends an attempt which is to be parked; see [Hook.Mismatched]. Until then
// seven things happen on the connection:
//
//   - A dequeue is sent as our own script, which does the same and also stamps the
//     task with the attempt's name, wipes the marks of earlier parking and, with an
//     [Ahead], takes the task's lock.
//   - The retry or archive call of an attempt that is to be parked is sent as
//     park.lua: active -> retry, nothing counted, nothing archived.
//   - Every other acknowledgement is sent with a condition in front of asynq's own
//     script: the attempt that it is of is still the task's latest. That makes it safe
//     to send again, which asynq tries with a context that has ended. A task that is put
//     back by a shutdown keeps its ticket. For an attempt that a [Finish] has ended, no
//     acknowledgement is sent.
//   - A result that a handler writes is kept only while its attempt lasts.
//   - A script that may put tasks into pending is sent so that it also rings the
//     queue's bell, once for each. A [Ringer] does the same for asynq's clients.
//   - What a server writes about itself every few seconds also says that it is guarded.
//     This is known by its keys. [Servers] reads it.
//   - Everything else passes through.
//
// A [Fetcher] is a hook that holds back the dequeues of an idle server until the
// [Doorbell] of its process has heard a bell. While a hook is shut ([Hook.Shut]) it sends no
// dequeue at all.
//
// A [Finish] ends an attempt whose handler has succeeded. In the same step it takes the next task. The
// server's fetcher keeps that task until a dequeue claims it.
//
// [Promote] moves a parked task to the head of pending, as [Summon] does within the
// scripts of package lock. [Due], [All] and [AllWaiting] list the locks and the tasks that
// wait, for the sweeper.
package asynqredis
