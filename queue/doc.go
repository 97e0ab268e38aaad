// Package queue runs business tasks from a Redis-backed queue (asynq) and guards
// each task's resource with a lock.
//
// A [Client] enqueues tasks: plain structs with a kind and, where they must
// not run at the same time as others, a resource. A [Server] runs them. Around
// each guarded task the server holds the lock of its resource, renews it, and
// releases it when the handler has returned.
//
// # When the resource is busy
//
//	pending -> (a worker takes it) -> acquire --- got it --> handler, lock renewed --> release --> done, or retry after its own failure
//	   ^                                |                                                |
//	   |                        busy: join the line                                      | somebody is in line:
//	   |                                v                                                v the lock is reserved for its head
//	   '---- called -------------- retry set  <----------------------------------- call: retry set -> head of pending
//
// A refused task goes to asynq's retry set, where the dashboard shows it with
// the reason as its last error, and its worker goes on with other tasks. When
// the lock is released the first in line is called back to the head of pending.
// Should the holder die, or the release or the call be lost, an elected server finds the
// lock free and calls the first in line. Waiting uses up no retry, counts as no failure
// and archives nothing.
//
// # What a handler's error does
//
//	nil              the task has succeeded
//	Permanent(err)   archived at once
//	another error    tried again after a growing delay, archived when its retries are used up
//	lock.ErrBusy     a second lock of the handler's is taken: tried again after a second, not charged
//	lock.ErrReentry  the handler asked for the lock of its own task again: as another error
//	lock.ErrLost     whatever the handler returned, when the lease was lost before, and lock.ErrStale:
//	                 tried again after a growing delay, not charged as often as [Recovery] says
//
// # Two resources
//
// A task has one resource, for which it waits in line. A handler that needs a second one takes its
// lock with [Server.Locker], before it writes anything, and returns the error if that is busy:
//
//	return server.Locker().Hold(ctx, stock, nil, func(ctx context.Context) error { ... })
//
// The task then lets go of its own resource and comes again after about a second, in no line. So two
// tasks that need the same two resources in opposite order do not wait for each other. Let the one
// that is busier be the task's own.
//
// # On a Redis Cluster
//
// asynq keeps all of a queue on one master. Shards, set alike for clients and
// servers, spread a queue over several asynq queues by the resources of its tasks:
// those of one resource share a shard.
//
// When a master dies, its queues and resources rest until a replica has taken its place and
// the clients know it. Those that [NewServer] and [Redis] make know it within about a second.
// Others may take a minute: set ClusterStateReloadInterval of redis.ClusterOptions. A release
// that the dead master did not answer is sent again.
//
// # Locks elsewhere
//
// A server or guard that is given a [lock.Locker] takes its locks with that, wherever
// they are. Tasks wait in line on their own Redis all the same; see [GuardConfig].
//
// # With your own asynq.Server
//
// A [Server] runs your asynq.ServeMux, see [ServerConfig]. [Guard] is the same protection as plain
// asynq middleware for a server that stays your own, see its example.
package queue
