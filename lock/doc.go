// Package lock is a lock for many processes, on Redis or another store. A lease is renewed while it
// is held. If the lock is lost, the context of the lease ends in time. Each holder gets a fencing
// token. Waiters are queued and served in order of arrival.
//
// # Ways to take a lock
//
// [Locker.Do] is all that most programs need. It takes the lock, runs a function while the lease is
// renewed, and releases the lock. [Locker.DoAll] does so with several locks, all or none.
// [Locker.Acquire] gives a [Lease] to those who need more. They try once, or wait for as long as
// [Options.Wait] says:
//
//   - in the wait queue of the resource: in order of arrival among all processes, woken by the
//     release. Nothing is polled. Fallback times stand in for a wake-up that was lost, and for a
//     holder that died. On a [Store] that wakes nobody, such as lock/redlock, the caller polls
//     after 25 ms to 1 s. Callers also poll behind a holder on the plain protocol: the first at
//     least every second, those further back less often, up to 30 s.
//   - with an [Options.Retry], such as [Exponential]: by trying again. A caller that polls is not
//     queued, and may be overtaken.
//
// A lease is renewed until its release. Without a release, renewal ends with the contexts of the
// work, or with [Options.MaxHold]. [Lease] has the details.
//
// At most two goroutines of one process ask the store for the same lock at a time. One is the first
// of those in the wait queue, and the other one of those that try. The others that try share the
// attempt, never the lock. On etcd each waiter asks for itself.
//
// On Redis calls for many locks go together: those that come while some are under way leave in one
// script as soon as these are answered, at most 100 at a time, and in a Cluster by node in one
// pipeline. A caller alone waits for nobody. What becomes of one lock changes nothing for the others,
// and a connection that hangs holds up other calls for 50 ms at most. All leases of a Locker are
// renewed at the same moments, so they share a call or two.
//
// The holder is a context, the one of [Locker.Do] or [Lease.Context]. A caller that asks for the
// lock again with that context, in any goroutine, gets [ErrReentry]. So two goroutines with one
// context are not both at work, and none waits for a lock of its own. [Options.Reentrant] takes the
// lock again, for as often as it is then released.
//
// # Life of a lock
//
//	        Acquire                         Release
//	free ------------> held by a token ------------------> free
//	 ^                  |     ^                              ^
//	 | TTL ran out      |     | Acquire by that waiter       |
//	 '------------------'     |                              | hand-off timeout,
//	                    |     |                              | nobody came
//	            Release |  reserved for the first of the     |
//	                    |  wait queue                        |
//	                    '---->'------------------------------'
//
// A lock is one string key, Config.Prefix followed by the resource. The value is the holder's
// token. So any program on the plain protocol (SET key random NX PX, compare-and-delete) excludes
// us, and is excluded by us. Companion keys share the slot in a Redis Cluster: the last fencing
// token, the wait queue, which is a sorted set of waiters by ticket, and a few more that
// docs/reference/redis-keys.md lists. All of them expire, or go with the last waiter. A waiter listens on a channel of its
// process.
//
// # Guarantees
//
// At most one holder of a resource has a valid lease at a time. That rests on a store that keeps
// its data, and on a holder's clock that runs at about the server's rate. A lease is valid until
// its deadline. The deadline is the start of the last acquire or renew call that was answered, plus
// TTL, minus SafetyMargin. Past the deadline the contexts of the lease are cancelled with
// [ErrLost], whatever the store may answer later. So the holder is told before anybody else can
// have the lock.
//
// A lease's fencing token ([Lease.Fence]) is higher than that of every earlier holder of the
// resource. The token is at least the server's time in microseconds. So tokens rise also after a
// restart of Redis that lost everything, unless the clock stepped back further than
// Config.FenceRetention.
//
// A lock is renewed and released by its own token only. Renewal never makes a key that is gone. A
// call whose answer was lost, and that the client sends again, has no second effect.
//
// Waiters in the wait queue get the lock in the order in which they came, with these exceptions:
//
//   - A waiter that is woken, and does not come within Config.HandoffTimeout, takes its place again
//     when it comes.
//   - After such a reservation has expired, the next who asks takes the lock.
//   - A caller that polls or tries once takes a free lock whoever of the goroutines is queued.
//   - Tasks that came before have a freed lock to themselves for 50 ms. Then a goroutine may take it.
//   - Of the waiters of a process only the first is in the wait queue. The next one joins when that one has the lock: if the
//     work then takes less time than a call, a waiter of another process that came later may go first.
//   - A server clock that steps back lets newcomers in front.
//
// # What it does not give
//
// A lock with an expiry cannot stop a holder that was paused past its deadline from writing. Let
// the written-to system compare fencing tokens. See
// https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html and packages
// lock/sqlfence and lock/redisfence. Redis replicates asynchronously: a failover may forget a lock
// that was just granted. While a former master still answers, both masters may grant the lock in
// the same microsecond, and then under the same token. If somebody deletes the key of a held lock,
// another caller can have the lock before the holder learns of that, by its next renewal. A server
// clock that jumps expires locks early or late. A PUBLISH is delivered once or not at all; a waiter
// who misses it comes at its fallback time, after the rest of the holder's TTL at most. A waiter
// that is woken may not come, as its process was cut off, or died in a Cluster. That costs those
// behind it the hand-off timeout. As they come at their fallback times, it may cost up to the rest
// of the TTL that they last saw.
//
// # Which Redis, and how much to trust it
//
// Ask what a second holder would cost. If that is some work done twice (efficiency), a single node
// or Sentinel is all you need, with or without persistence. If that is wrong data (correctness), no
// Redis is enough by itself. Pass [Fence] along with each write, and have the written-to system
// refuse an older one. Then the lock only keeps the contention away, and a failover or a pause
// costs a retry, not an order.
//
//   - Single node: the simplest; locks are lost with its data, and a holder then has at most until
//     its next renewal in which it is not alone. With appendonly and appendfsync always it survives
//     a restart.
//   - Sentinel, or a replica: survives the loss of a machine; a lock granted in the moment before may
//     be granted again. min-replicas-to-write narrows that.
//   - Cluster: the same for each of its masters; for more locks than one serves.
//   - A majority of independent servers, see package lock/redlock: survives the loss of a minority of
//     them, and forgets no lock if they are restarted as said there. It has no fencing token and no
//     wait queue, so it is for efficiency only.
//   - No Redis, but etcd, see the module lock/etcdlock: a majority agrees on a lock before it is
//     given, so a failover forgets none. Fence all the same, for the holder that was paused; what is
//     kept in etcd itself can be written on condition of the lock.
//
// Each Redis wants maxmemory-policy noeviction, as an evicted lock is a lost one. Give the client
// ContextTimeoutEnabled, see [Redis]. See docs/evidence/lock-cases.md in the repository for what can go wrong,
// case by case, and the test of each.
package lock
