// Package etcdlock keeps locks in etcd, for [lock.Locker]: for work that one Redis is
// not enough for, because its locks must survive the loss of a machine without being
// given twice. It is a module of its own, so that only those who use it build etcd's client.
//
//	client, err := clientv3.New(clientv3.Config{
//		Endpoints: endpoints,
//		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second, // leaves members that hang
//	})
//	...
//	store := etcdlock.New(client)
//	locker, err := lock.New(store, lock.Config{})
//	err = locker.Do(ctx, "account:7", nil, func(ctx context.Context) error {
//		_, err := store.Commit(ctx, "account:7", clientv3.OpPut("balance:7", "100"))
//		return err
//	})
//
// All of package lock works on it: renewal, contexts that end in time, re-entry, the ways
// to wait. A queue.Guard takes the Store, too.
//
// # What it gives
//
// Each acquisition has a session of its own: a lease of etcd, with one key that lives as
// long as it does. The key that was created first among those of a lock is its holder's,
// as in etcd's own recipe (https://pkg.go.dev/go.etcd.io/etcd/client/v3/concurrency);
// the revision at which it was created is the fencing token. That is agreed on by a
// majority of the cluster before the lock is given: whichever members fail, no token
// goes back, and the lock is not given again before etcd has ended the session.
//
// A waiter ([lock.Options.Wait]) creates a key of its own at once. The waiters of all
// processes get the lock in the order in which their keys were created. Each watches the
// key before its own, so a release wakes one. A caller that tries again instead, and a
// guarded task, get the lock once the wait queue is empty. If a process is cut off for a
// TTL, the sessions of its waiters end, and they join again at the end.
//
// The context of [lock.Lease.Context] ends with the session, at the latest a safety margin
// before etcd can end it. The deadline counts from the sending of the last request that
// renewed the session. While a new leader is elected, renewals fail and are tried again; a
// new leader gives leases their whole TTL.
//
// That rests on etcd not ending a lease that was renewed, which it does in one case: a leader
// that stood still for longer than the TTL, such as a paused virtual machine, may end leases
// that the next leader has renewed, in the moment in which it goes on
// (https://github.com/etcd-io/etcd/issues/15247). Since 3.4.31 and 3.5.13 etcd asks itself first
// whether it still leads, but not if its clock has ticked by then: of a hundred locks with a TTL
// of 5 s, whose leader was stopped for 8 s, 15 to 47 were given to a rival before their holder
// was told, on 3.6.16, and 29 to 64 on 3.4.23. So where it matters the lock alone is not enough:
//
// [Store.Commit] writes to etcd itself under the condition, checked in the same transaction,
// that the lock is still held: for what is kept there mutual exclusion is strict, however
// long a holder was paused. Elsewhere pass [lock.Fence] along with each write and have the
// written-to system refuse an older one, see packages lock/sqlfence and lock/redisfence.
// See also https://jepsen.io/analyses/etcd-3.4.3 and https://etcd.io/docs/v3.6/learning/why/.
//
// # What it does not give
//
// Long wait queues are costly. Each goroutine that waits has a session and a watch of its
// own; on Redis one goroutine of a process contends for all. By default a thousand waiters
// are a thousand leases, each renewed every 5 s. As often, each waiter looks for the key
// before its own and watches it anew. Each tries every 19 s or so, in case nobody has woken
// it. That is about 550 requests and 200 watches a second, and for each look etcd goes
// through the whole wait queue.
//
// A lock costs what etcd's writes cost: two, each agreed on and synced to the disks of a
// majority, to take it, and one to release it. Parked tasks do not join the wait queue on
// etcd: they wait on the Redis of the tasks, and the first of them comes again after a second.
// [lock.BusyError.Position] is what it was when the waiter joined, or less.
//
// etcd counts a TTL in whole seconds, and one shorter than its least (2 s with its default
// settings) is that long: a lock of a holder that died is free later than [lock.Config.TTL]
// says, never earlier. It ends leases up to a second after their time.
//
// Its fencing tokens are smaller than those of Redis, which are times. Who moves a resource
// here from another store resets what the written-to systems have seen of it, while nothing
// runs; else they refuse every write.
//
// A cluster that is restored from a backup without --bump-revision gives out old tokens
// again, see https://etcd.io/docs/v3.6/op-guide/recovery/.
//
// # Keys
//
// The keys of a lock begin with its name in braces and a slash, as lock:account:7 does in
//
//	{lock:account:7}/694d97a2f4c3c11d
//
// and end with their lease. Programs that use etcd's recipe exclude ours, share their
// wait queue, and are excluded, if they lock the name in braces: concurrency.NewMutex(session,
// "{lock:account:7}"), or
//
//	etcdctl lock '{lock:account:7}' -- ./repair
//
// A user with a role needs readwrite on the prefix "{lock:". Have the clients authenticate by
// their TLS certificates: with a user name and a password etcd's client logs in anew before each
// renewal, which costs etcd the check of a password and a write. The values are the holders'
// labels behind random tokens; they are not secret.
package etcdlock
