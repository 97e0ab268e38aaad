// Package redlock keeps locks on several independent Redis servers at once, of which a
// minority may be down. [New] returns a [lock.Store]; all else is done by a [lock.Locker]:
//
//	clients := ... // three or more redis.NewClient, each with ContextTimeoutEnabled: true,
//	               // and best with MaxRetries: -1 and DialerRetries: 1
//	store, err := redlock.New(ctx, clients, redlock.Config{})
//	locker, err := lock.New(store, lock.Config{})
//
// # When to use it
//
// Use it for locks whose loss costs some work done twice, and that have to be available while a
// machine is down. Three servers know nothing of each other. One server with a replica is weaker:
// the replica may not have heard of the lock yet when it takes over.
//
// Do not use it for locks that keep data right. A quorum does not stop a holder that was paused for
// longer than its lease, and neither does a single Redis. Here no fencing token lets the written-to
// system do so. Numbers of independent servers have no common order, so [lock.Lease.Fence] is 0. If
// data depends on the lock, use package lock on one Redis together with lock/sqlfence or
// lock/redisfence. Or use a system with a consensus, such as lock/etcdlock. Do not use a quorum for
// much traffic on one lock, either. There is no wait queue, and each waiter asks all nodes again
// and again. There are no semaphores.
//
// The algorithm is described at
// https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/. That its safety
// rests on clocks and pauses is the point of
// https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html, and
// http://antirez.com/news/101 is its author's answer. Read both first.
//
// # How it works
//
// All nodes are asked for their votes at once. A node votes by setting the lock's key to the
// holder's token, if the key is free there. A caller with the votes of more than half of all nodes
// has the lock, as two such groups share a node. A caller with fewer votes takes back every vote
// that it may have got. That goes to every node, also if the caller has gone, since a node whose
// answer was lost may have voted, too. If several ask at once, and none gets enough, each asks
// again after a random pause. A caller gives up after five times in all. The lock's time counts
// from before the first node was asked. If the last vote comes after the lease's deadline, the lock
// is not taken.
//
// A renewal prolongs the key on each node on which it still is the holder's. It needs a majority as
// well, within the old deadline. While too many nodes fail, the renewal is tried again. The lease
// is lost at its deadline, or when so many nodes deny it that the others are no majority. The key
// is never made again. So each node that restarts empty is lost to the locks that are held then.
// Restart one node after the other, and not faster than the longest lock is held.
//
// A call returns when all nodes have answered, or after [Config.NodeTimeout]. A call does not stop
// at a majority, as a late vote could come after the release. A node that hung may vote when it
// goes on, and such a vote expires after the TTL.
//
// Key and value are those of package lock, and of any program on the plain protocol (SET key random
// NX PX on most of the same nodes, compare-and-delete). All of these exclude each other.
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
// The holder is told in time ([lock.Lease.Context]), also when it is cut off. The store's answer is
// one of three: busy, lost, or an error that too many nodes did not answer. That error names each
// node and its answer.
//
// # Nodes
//
// Use three or five servers, on machines that fail independently. Each is a single master: no
// Cluster, and no replica that takes over, by Sentinel or otherwise. A replica that takes over is a
// node that has forgotten what was not replicated yet. Its uptime is long, so it votes at once.
//
// maxmemory-policy is noeviction. The clients' user may EVAL, EVALSHA, GET, SET, DEL, PTTL, PEXPIRE
// and INFO on the locks' keys. Clocks are slewed, not set: a server's clock that jumps ahead
// expires its locks early.
//
// # Nodes that restart
//
// Say A holds a lock on nodes 1 and 2 of three, as 3 was away. Node 1 restarts without its data.
// Then 1 and 3 would give the same lock to B. So a node that has started does not vote until every
// lock that it may have forgotten has expired. The node itself checks for how long it has run, in
// the step in which it votes. So no client has to have seen the restart. The price is that new
// nodes give no locks for the first TTL and a second, 16 s by default. A caller that waits endures
// errors for a TTL. If a majority restarts, the caller gives up just before the nodes vote, with an
// error that says so.
//
// That relies on the server's clock, which must not be set ahead while the node starts. The check
// does not see data that is lost without a restart, such as by FLUSHALL or a machine that is
// restored from a snapshot; after that restart the server. A node with appendonly yes and
// appendfsync always forgets nothing, and writes each vote to the disk. If all nodes do so,
// [NoRestartDelay] saves the wait. appendfsync everysec may lose the last second, so keep the
// delay.
package redlock
