// Package redlock keeps locks on several independent Redis servers at once, of which a
// minority may be down. [New] returns a [lock.Store]; all else is done by a [lock.Locker]:
//
//	// clients has three or more redis.NewClient, each with ContextTimeoutEnabled: true,
//	// and best with MaxRetries: -1 and DialerRetries: 1
//	store, err := redlock.New(ctx, clients, redlock.Config{})
//	locker, err := lock.New(store, lock.Config{})
//
// # When to use it
//
// Use it for locks whose loss costs some work done twice, and that are needed while a machine is
// down. Its servers know nothing of one another. A replica that takes over from one server may not
// know the latest locks yet.
//
// Do not use it for locks that keep data right. A quorum does not stop a holder that was paused for
// longer than its lease. A single Redis does not either, but it has fencing tokens. Independent
// servers have no common order of grants, so [lock.Lease.Fence] is 0 here. Where data depends on the
// lock, use package lock on one Redis, with lock/sqlfence or lock/redisfence; or use etcd, with
// lock/etcdlock.
//
// Do not use it for much traffic on one lock either. There is no wait queue, and each waiter asks all
// nodes again and again. There are no semaphores.
//
// Read about the algorithm first: https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/
// describes it. https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html shows that
// its safety rests on clocks and pauses. http://antirez.com/news/101 is its author's answer.
//
// # How it works
//
// A caller asks all nodes for their votes at once. A node votes by setting the lock's key to the
// caller's token, if the key is free there. A caller with the votes of more than half of all nodes has
// the lock: any two majorities share a node. Another caller takes back its votes on every node, even
// if it has gone away, as a node whose answer was lost may have voted. If several asked at once and
// none has a majority, each asks again after a random pause, five times in all. The lease counts from
// before the first question. Votes are refused if the last of them comes after the lease's deadline.
//
// A renewal prolongs the key on each node where the key still is the holder's. It needs a majority
// before the old deadline. While too many nodes fail, the renewal is tried again. The lease is lost at
// its deadline, or as soon as so many nodes deny it that the others are no majority. A renewal never
// makes a key again. So a node that restarts empty counts no more for the locks that are held then.
// Restart one node after the other, and wait in between for as long as the longest lock is held.
//
// A call returns when all nodes have answered, or after [Config.NodeTimeout]. It does not stop at a
// majority: what a slow node did later could come after the release. What a hanging node does later
// expires after the TTL.
//
// The key and its value are those of package lock, and of any program on the plain protocol (SET key
// random NX PX on most of the same nodes, compare-and-delete). All of these exclude each other.
//
// # Guarantees
//
// At most one holder of a resource has a valid lease at a time, as long as
//
//   - all programs use the same nodes;
//   - no node forgets a lock that it granted, unless it then stays out for as long as that lock
//     could live, which is what Config.RestartDelay is for;
//   - no node's clock jumps ahead, and all run at about the same rate: lock.Config.SafetyMargin
//     covers the difference.
//
// The holder learns of a loss in time ([lock.Lease.Context]), also when it is cut off. The store
// answers that the lock is busy, that it is lost, or that too few nodes have answered. The last
// error names each of these nodes and what it said.
//
// # Nodes
//
// Use three or five servers, on machines that fail independently. Each is a single master, without a
// Cluster and without a replica that takes over, by Sentinel or otherwise. Such a replica may lack the
// latest locks, and would vote at once, as it has not restarted.
//
// Set maxmemory-policy noeviction. The clients' user may EVAL, EVALSHA, GET, SET, DEL, PTTL, PEXPIRE
// and INFO on the locks' keys. Have the clocks slewed, not set: a server whose clock jumps ahead
// expires its locks early.
//
// # Nodes that restart
//
// Say A holds a lock on nodes 1 and 2 of three, as node 3 was away. Now node 1 restarts without its
// data. Then nodes 1 and 3 would give the same lock to B. So a node that has started does not vote
// until every lock that it may have forgotten has expired. The node itself says for how long it has
// run, in the step in which it votes. No client has to see the restart. As a price, new nodes give
// no locks for the first TTL and a second, 16 s by default. A caller that waits goes on through errors
// for a TTL. So when a majority restarts, the caller gives up just before these nodes vote, with an
// error that says so.
//
// This relies on the server's clock, which must not be set ahead while the node starts. A node does
// not notice data that is lost without a restart, as by FLUSHALL or by a machine that is restored from
// a snapshot. Restart the server after that. A node with appendonly yes and appendfsync always
// forgets nothing, and writes each vote to the disk. If all nodes do so, [NoRestartDelay] saves the
// wait. With appendfsync everysec a node may lose the last second, so keep the delay.
package redlock
