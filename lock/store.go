package lock

import (
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/lockredis"
	"github.com/sidingq/siding/internal/store"
)

// A Store keeps locks for many processes: on one Redis ([Redis]), on a majority of Redis servers
// (lock/redlock), in etcd (lock/etcdlock), or in memory (lock/locktest). Only a [Locker] calls its
// methods. Their types are internal, so only this repository implements a Store.
type Store interface{ store.Store }

// Redis returns a [Store] on rdb: a client of a single node, of Sentinel or of a Cluster. The
// caller closes rdb. If the client can subscribe, a release wakes the next waiter. A redis.Ring
// wakes none: it would listen on another server than the one that has the lock. Give a
// *redis.ClusterClient without a wrapper. Behind one, some waiters are taken to be gone, and come
// at their fallback times, in their old places. A user with an ACL needs the channels
// siding-goroutine:*, to wait in a wait queue and to wake waiters.
//
// Set ContextTimeoutEnabled of the client. go-redis never interrupts a call when its context is
// cancelled. It does so at the context's deadline only with that option. Otherwise a call to a
// Redis that hangs returns after the client's ReadTimeout, once for each of its retries. No
// guarantee rests on that, but how soon an Acquire returns does.
//
// Set ClusterStateReloadInterval of a Cluster's client to a second. By default the client reloads
// once a minute which master has which slots. For so long it may know only a master that has died.
// redis.UniversalOptions lacks the option; queue.Redis makes such a client of them.
//
// A nil rdb gives a nil Store, which [New] refuses.
func Redis(rdb redis.Scripter) Store {
	if lockredis.None(rdb) {
		return nil
	}
	return lockredis.New(rdb)
}
