// Package etcdlock keeps locks in etcd, for [lock.Locker]. Such locks survive the loss of a
// machine, and are not given twice because of it; one Redis cannot promise that. The package is a
// module of its own, so that only its users build etcd's client.
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
// to wait. So does queue.ServerConfig.Store.
//
// # What it gives
//
// Each acquisition has a session of its own: a lease of etcd, with one key that lives as long as
// the lease. The key that was created first among those of a lock is its holder's, as in etcd's own
// recipe (https://pkg.go.dev/go.etcd.io/etcd/client/v3/concurrency); the revision at which it was
// created is the fencing token. A majority of the cluster agrees on the key before the lock is
// given. So whichever members fail, tokens do not go back. The lock is not given again before etcd
// has ended the session.
//
// A waiter ([lock.Options.Wait]) creates a key of its own at once. The waiters of all processes get
// the lock in the order in which their keys were created. Each watches the key before its own, so a
// release wakes one. A caller that tries again instead gets the lock once the wait queue is empty.
// So does a guarded task at first; later it waits in the queue for half a second each time. If a
// process is cut off for a TTL, the sessions of its waiters end, and the waiters join again at the end.
//
// The context of [lock.Lease.Context] ends with the session, at the latest a safety margin
// before etcd can end it. The deadline counts from the sending of the last request that
// renewed the session. While a new leader is elected, renewals fail and are tried again; a
// new leader gives leases their whole TTL.
//
// That rests on etcd, which must not end a lease that was renewed. In one case etcd does: a leader
// may stand still for longer than the TTL, such as in a paused virtual machine. When that leader
// goes on, it may end leases that the next leader has renewed
// (https://github.com/etcd-io/etcd/issues/15247). Since 3.4.31 and 3.5.13 such a leader first asks
// whether it still leads, unless its clock ticks before that. In a test a hundred locks had a TTL
// of 5 s, and their leader was stopped for 8 s. A rival got 15 to 47 of them before the holder was
// told, on 3.6.16, and 29 to 64 on 3.4.23. So for data that must be right the lock alone is not
// enough:
//
// [Store.Commit] writes to etcd itself. The same transaction checks that the lock is still held. So
// for data in etcd mutual exclusion is strict, however long a holder was paused. Elsewhere pass
// [lock.Fence] along with each write, and have the written-to system refuse an older one. See
// packages lock/sqlfence and lock/redisfence. See also https://jepsen.io/analyses/etcd-3.4.3 and
// https://etcd.io/docs/v3.6/learning/why/.
//
// # What it does not give
//
// Long wait queues are costly. Each goroutine that waits has a session and a watch of its own; on
// Redis one goroutine of a process contends for all. By default a thousand waiters are a thousand
// leases, each renewed every 5 s. As often, each waiter looks for the key before its own and
// watches it anew. Each tries every 19 s or so, in case nobody has woken it. That is about 550
// requests and 200 watches a second. For each look, etcd goes through the whole wait queue.
//
// A lock takes two writes of etcd, and its release one. A majority agrees on each write, and syncs
// it to disk. Parked tasks do not join the wait queue on etcd. They wait on the Redis of the tasks,
// and the first of them comes again after a second. [lock.BusyError.Position] is what it was when
// the waiter joined, or less.
//
// etcd counts a TTL in whole seconds, and prolongs one that is shorter than its least, 2 s with its
// default settings. It also ends leases up to a second after their time. So a lock of a holder that
// died is free later than [lock.Config.TTL] says, never earlier.
//
// The fencing tokens of etcd are smaller than those of Redis, which are times. To move a resource
// here from another store, reset what the written-to systems have seen of the resource, while
// nothing runs. Otherwise they refuse every write.
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
// and end with their lease. Programs that use etcd's recipe exclude ours, share their wait queue,
// and are excluded. They have to lock the name in braces: concurrency.NewMutex(session,
// "{lock:account:7}"), or
//
//	etcdctl lock '{lock:account:7}' -- ./repair
//
// A user with a role needs readwrite on the prefix "{lock:". Have the clients authenticate by their
// TLS certificates. With a user name and a password, etcd's client logs in anew before each
// renewal. That costs etcd the check of a password and a write. The values are the holders' labels
// behind random tokens; they are not secret.
package etcdlock
