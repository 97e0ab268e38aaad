package lock

import (
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/redisstore"
	"github.com/sidingq/siding/internal/store"
)

// A Store keeps locks where many processes find them: on one Redis ([Redis]), on a majority of
// Redis servers (lock/redlock), in etcd (lock/etcdlock), or in memory (lock/locktest). Only a
// [Locker] calls its methods. Their types are internal, so only this repository implements it.
type Store interface{ store.Store }

// Redis returns a [Store] on rdb: a client of a single node, of Sentinel or of a
// Cluster, which it does not close. With a client that can subscribe, its
// releases tell waiters of their turn; not with a Ring, which would listen on another server than
// the one that has the lock. A Cluster is known by its type: behind a wrapper of
// *redis.ClusterClient some of those who wait in line are taken to be gone, and
// come by their timers, though in their old place. A user with an ACL needs the
// channels siding-call:* and siding-task:*, to wait in line and to call those who do.
//
// go-redis never interrupts a call when its context is cancelled, and at the
// context's deadline only with ContextTimeoutEnabled; a call to a Redis that hangs
// otherwise returns after the client's ReadTimeout, once for each of its retries.
// No guarantee rests on that, but how soon an Acquire returns does.
//
// A client of a Cluster reloads once a minute which master has which slots, and for so long
// may know no other master than one that has died. Set ClusterStateReloadInterval to a
// second; redis.UniversalOptions cannot, but queue.Redis makes such a client of them.
func Redis(rdb redis.Scripter) Store { return redisstore.New(rdb) }
