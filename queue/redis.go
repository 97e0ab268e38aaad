package queue

import (
	"cmp"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// Redis returns the client that a [Server] makes of opts, for those who make one
// themselves: for [NewClient], [NewGuard], [CheckRedis], or asynq. The caller closes it.
//
// It is that of redis.NewUniversalClient, with ContextTimeoutEnabled set. One of a Cluster
// learns soon that a master was replaced:
//
//   - While it is in use, it reloads every second which master has which slots
//     (ClusterStateReloadInterval). go-redis does so once a minute, and for so long may ask a
//     master that has died.
//   - DialerRetries is 1 and MaxRedirects 8, where opts leave them at zero. So a call that
//     fails is tried again, for about two seconds if it is refused, and each time with the master
//     known by then. go-redis first dials a machine that is gone five times.
func Redis(opts *redis.UniversalOptions) redis.UniversalClient {
	o := *opts
	o.ContextTimeoutEnabled = true
	if o.MasterName != "" || len(o.Addrs) < 2 && !o.IsClusterMode {
		return redis.NewUniversalClient(&o)
	}
	cluster := o.Cluster()
	cluster.Addrs = slices.Clone(cluster.Addrs) // go-redis appends to it
	cluster.ClusterStateReloadInterval = time.Second
	cluster.DialerRetries = cmp.Or(cluster.DialerRetries, 1)
	cluster.MaxRedirects = cmp.Or(cluster.MaxRedirects, 8)
	return redis.NewClusterClient(cluster)
}
