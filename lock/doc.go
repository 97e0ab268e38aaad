// Package lock is a lock on Redis for many processes: taken and released by
// token, renewed while it is held, with a fencing token, a context that ends in
// time when the lock is lost, and a line of waiters that are called in turn.
//
// # Life of a lock
//
//	        Acquire                         Release
//	free ------------> held by a token ------------------> free
//	 ^                  |     ^                              ^
//	 | TTL ran out      |     | Acquire by that waiter       |
//	 '------------------'     |                              | grace ran out,
//	                    |     |                              | nobody came
//	            HandOff |   reserved for the head of the line
//	                    '---->'------------------------------'
//
// A lock is one string key, Config.Prefix followed by the resource. Its value
// is the holder's token, so that any program on the plain protocol
// (SET key random NX PX, compare-and-delete) excludes us and is excluded by us.
// Two companion keys share its Redis Cluster slot: the last fencing token and
// the line of waiters, a sorted set of opaque strings by ticket. All three
// expire.
//
// # Guarantees
//
// At most one lease of a resource is valid at a time, as long as Redis keeps
// its data and the holder's clock runs at about the server's rate. A lease is
// valid until its deadline: the start of the last acquire or renew call that
// Redis answered, plus TTL, minus Margin. Past the deadline the context of
// [Lease.Keep] is cancelled with [ErrLost], whatever Redis may answer later.
//
// A lease's fencing token ([Lease.Fence]) is higher than that of every earlier
// lease of the resource. It is at least the server's time in microseconds, so it
// survives a restart of Redis that lost everything, unless the clock stepped
// back further than Config.FenceRetention.
//
// A lock is renewed and released by its own token only. Renewal never makes a
// key that is gone.
//
// # What it does not give
//
// A lock with an expiry cannot stop a holder that was paused past its deadline
// from writing: let the written-to system compare fencing tokens, see
// https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html and
// packages lock/sqlfence and lock/redisfence. Redis replicates asynchronously: a
// failover may forget a lock that was just granted. Somebody who deletes the key
// of a held lock makes two believers until the next renewal.
package lock
