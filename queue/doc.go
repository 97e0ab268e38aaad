// Package queue runs business tasks from a Redis-backed queue (asynq) and guards
// each task's resource with a lock.
//
// A [Client] enqueues tasks. A task is a plain struct with a kind. A task that must not run at the
// same time as others also names a resource. A [Server] runs the tasks. The server takes the lock
// of a task's resource before the handler, renews the lock, and releases it after the handler.
//
// # When the resource is busy
//
//	pending ---> lock free ---> handler, lock renewed ---> done, or retried
//	   |             ^                                          |
//	   |   busy      |  in its turn                   the lock is free
//	   '-> its line -'<-----------------------------------------'
//
// A task that finds its resource busy is parked: it joins the line of the lock, in asynq's retry set, and its slot goes to
// another task. The dashboard shows the reason as the task's last error. When the lock is free, the first in
// the line starts. Waiting uses no retry, counts as no failure and archives nothing. A task whose worker
// dies, or shuts down, goes back to its place.
//
// Of several resources that are ready the one comes first that was taken longest ago, and new tasks
// and waiting ones take turns. Queues that nobody serves, or that are paused, hold up no others for more
// than 50 ms. What holds up tasks of several resources for longer is in docs/guides/several-resources.md.
//
// # What a handler's error does
//
//	nil               the task has succeeded
//	Permanent(err)    the task is archived at once
//	Unavailable(err)  the task waits until what all tasks need is there again; uses no retry
//	another error     tried again after a growing delay, archived when its retries are used up
//	lock.ErrBusy      a second lock is taken: tried again after some seconds, see below; uses no retry
//	lock.ErrReentry   the handler wants the lock of its own task again: like another error
//	lock.ErrStale     a write was refused, as there was a later holder: like a lost lock
//
// If the lock was lost while the handler ran, the handler's error does not count. The task is tried
// again after a growing delay. [Recovery] says how often that uses no retry.
//
// # Two resources
//
// A task that knows all that it needs when it is enqueued names it by [AllOf]. Otherwise the handler takes the
// second lock by [Server.Locker], before it writes anything. If the lock is busy, the handler returns the error:
//
//	return server.Locker().Do(ctx, stock, nil, func(ctx context.Context) error { ... })
//
// The task then releases its own resource and comes again, in its place, after a random time: up to
// three seconds or, if that is more, up to twice as long as it had run, a minute at most. So of two
// tasks that need the same two resources in opposite order one soon gets both. For the second lock it
// does not queue: make the busier resource the task's own.
//
// # With asynq
//
// [NewServer] and [NewServerFromRedisClient] take the configuration and the handler of an asynq
// program as they are, and its tasks from any asynq client. A plain asynq server on the same queues
// would run guarded tasks without their locks. [Client.NewTask] is for asynq's own clients and
// schedulers.
//
// # On a Redis Cluster
//
// asynq keeps all of a queue on one master. Shards, set alike for clients and servers, spread a
// queue over several asynq queues by the resources of its tasks. Tasks of one resource share a
// shard.
//
// When a master dies, its queues and resources rest until a replica is the master and the clients
// know it. Clients made by [NewServer], [Redis] and [RedisOpt] know it within about a second. Others may
// take a minute: set ClusterStateReloadInterval of redis.ClusterOptions. A release that the dead master
// did not answer is sent again.
//
// # Locks elsewhere
//
// The locks may be in another [lock.Store] than the Redis of the tasks, such as one on etcd. Tasks
// wait on their own Redis all the same; see [ServerConfig].
package queue
