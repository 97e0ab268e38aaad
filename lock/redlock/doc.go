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
// For locks whose loss costs some work done twice, and that have to be available while a
// machine is down: three servers that know nothing of each other, instead of one with a
// replica that may not have heard of the lock yet when it takes over.
//
// Not for locks that keep data right. A quorum does not stop a holder that was paused for
// longer than its lease, no more than a single Redis does, and here there is no fencing token
// by which the written-to system could: numbers that are handed out by independent servers
// are in no common order, so [lock.Lease.Fence] is 0. Where data depends on it use package
// lock on one Redis together with lock/sqlfence or lock/redisfence, or a system with a
// consensus, such as lock/etcdlock. Not for much traffic on one lock, either: there is
// no wait queue, and each waiter asks all nodes again and again. There are no semaphores.
//
// The algorithm is described at
// https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/. That its safety
// rests on clocks and pauses is the point of
// https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html, and
// http://antirez.com/news/101 is its author's answer. Read both first.
//
// # How it works
//
// Each node is asked for its vote, all at once: to set the lock's key to the holder's token,
// if it is free there. Who has the votes of more than half of all nodes has the lock, as of
// two such groups one node is in both. A caller that does not get them takes back every vote
// that it may have got. That goes to every node, also if the caller has gone, since a node
// whose answer was lost may have voted too. Where several asked at once and none got enough,
// each asks again after a pause at random, and gives up after five times in all. The lock's time
// counts from before the first node was asked, so what the votes took is not trusted; votes of
// which the last comes after the lease's deadline are refused.
//
// A renewal prolongs the key where it still is the holder's, and needs a majority as well,
// within the old deadline. While too many nodes fail it is tried again; the lease is lost
// when so many say that the lock is not the holder's that the others are no majority, or at
// its deadline. The key
// is never made again, so each node that restarts empty is lost to the locks that are held
// then: restart one after the other, and not faster than the longest lock is held.
//
// A call returns when all nodes have answered, or after [Config.NodeTimeout]. It does
// not stop at a majority: what a node did later could come after the release.
// What a node that hung does when it goes on expires after the TTL.
//
// The key and its value are those of package lock, and of any program on the plain protocol
// (SET key random NX PX on most of the same nodes, compare-and-delete): they exclude each other.
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
// The holder is told in time ([lock.Lease.Context]), also when it is cut off. The
// store's answer is one of three: busy, lost, or the error that too many nodes did not answer,
// which names each and what it said.
//
// # Nodes
//
// Three or five servers, on machines that fail independently, each a single master: no
// Cluster, no replica that takes over, by Sentinel or otherwise. A replica is as good as a node
// that forgot what was not replicated yet, and it does not stay out: its uptime is long.
//
// maxmemory-policy is noeviction. The clients' user may EVAL, EVALSHA, GET, SET, DEL, PTTL, PEXPIRE
// and INFO on the locks' keys. Clocks are slewed, not set: a server's clock that jumps ahead
// expires its locks early.
//
// # Nodes that restart
//
// Say A holds a lock on nodes 1 and 2 of three, as 3 was away, and node 1 restarts without its
// data. Then 1 and 3 would give the same lock to B. So a node that has started does not vote
// until every lock that it may have forgotten has expired. It is the node itself that knows
// for how long it runs, in the step in which it votes: no client has to have seen the restart. The
// price is that new nodes give no locks for the first TTL and a second, 16 s by default. A caller
// that waits endures errors for a TTL: when a majority restarts it gives up with an error that says
// so, just before they vote.
//
// That relies on the server's clock, which must not be set ahead while the node starts. It does
// not see data that is lost without a restart, such as by FLUSHALL or a machine that is restored
// from a snapshot; after that restart the server. A node with appendonly yes and appendfsync
// always forgets nothing, and writes each vote to the disk. If all nodes do so,
// [NoRestartDelay] saves the wait. appendfsync everysec may lose the last second, so keep
// the delay.
package redlock
