package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/lockredis"
)

// Redis returns a go-redis client of opts, for [NewClient], [NewServerFromRedisClient] and [CheckRedis]. The caller
// closes the client. Calls end with the deadlines of their contexts. Redis panics if opts is nil.
//
// The client of a Cluster learns soon that a master was replaced:
//
//   - While it is in use, it reloads every second which master has which slots
//     (ClusterStateReloadInterval). go-redis does so once a minute, and may ask a master that
//     has died for that long.
//   - DialerRetries is 1 and MaxRedirects 8, unless opts set them. So a call that fails is
//     tried again, for about two seconds if it is refused. Each try goes to the master that the
//     client knows by then. go-redis alone dials a machine that is gone five times first.
func Redis(opts *redis.UniversalOptions) redis.UniversalClient {
	if opts == nil {
		panic("queue: Redis: the options are nil")
	}
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

// RedisOpt makes [NewServer] and asynq create clients by [Redis]. A RedisOpt has the fields of
// redis.UniversalOptions, which have more settings than asynq's own options.
type RedisOpt redis.UniversalOptions

// MakeRedisClient implements [asynq.RedisConnOpt].
func (o RedisOpt) MakeRedisClient() any { return Redis((*redis.UniversalOptions)(&o)) }

// tuned returns asynq's own options as a RedisOpt, and others as they are.
func tuned(opt asynq.RedisConnOpt) asynq.RedisConnOpt {
	if v := reflect.ValueOf(opt); v.Kind() == reflect.Pointer && !v.IsNil() {
		if o, ok := reflect.TypeAssert[asynq.RedisConnOpt](v.Elem()); ok {
			opt = o
		}
	}
	switch o := opt.(type) {
	case asynq.RedisClientOpt:
		return RedisOpt{
			Addrs: []string{o.Addr}, Dialer: dialer(o), DB: o.DB, Username: o.Username, Password: o.Password, PoolSize: o.PoolSize,
			DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout, TLSConfig: o.TLSConfig,
		}
	case asynq.RedisFailoverClientOpt:
		if o.MasterName == "" {
			return opt // as a RedisOpt it would mean something else
		}
		return RedisOpt{
			Addrs: o.SentinelAddrs, MasterName: o.MasterName, SentinelUsername: o.SentinelUsername, SentinelPassword: o.SentinelPassword,
			DB: o.DB, Username: o.Username, Password: o.Password, PoolSize: o.PoolSize,
			DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout, TLSConfig: o.TLSConfig,
		}
	case asynq.RedisClusterClientOpt:
		return RedisOpt{
			Addrs: o.Addrs, IsClusterMode: true, MaxRedirects: o.MaxRedirects, Username: o.Username, Password: o.Password,
			DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout, TLSConfig: o.TLSConfig,
		}
	}
	return opt
}

// dialer returns what dials a network other than TCP; nil for TCP.
func dialer(o asynq.RedisClientOpt) func(ctx context.Context, network, addr string) (net.Conn, error) {
	if o.Network == "" || o.Network == "tcp" {
		return nil
	}
	dial := redis.NewDialer(&redis.Options{DialTimeout: cmp.Or(o.DialTimeout, 5*time.Second), TLSConfig: o.TLSConfig})
	return func(ctx context.Context, _, addr string) (net.Conn, error) { return dial(ctx, o.Network, addr) }
}

// connect returns a client of opt, and whether it is the caller's to close: a client that an option of a foreign type hands
// out may be one that others use, too. The pool is sized first unless opt is of a foreign type.
func connect(opt asynq.RedisConnOpt, size func(*RedisOpt)) (client redis.UniversalClient, own bool, err error) {
	if lockredis.None(opt) {
		return nil, false, fmt.Errorf("queue: redis: want options such as an asynq.RedisClientOpt, have %s", lockredis.Nothing(opt))
	}
	switch o := tuned(opt).(type) {
	case RedisOpt:
		size(&o)
		opt, own = o, true
	case asynq.RedisFailoverClientOpt:
		return nil, false, errors.New("queue: redis: want the MasterName that the Sentinels know, have none")
	}
	made := opt.MakeRedisClient()
	client, ok := made.(redis.UniversalClient)
	switch {
	case lockredis.None(made):
		return nil, false, fmt.Errorf("queue: redis: want %T to make a client of go-redis, have %s", opt, lockredis.Nothing(made))
	case !ok:
		return nil, false, fmt.Errorf("queue: redis: want %T to make a client of go-redis, have %T", opt, made)
	}
	if err := checkClient(client); err != nil {
		if own {
			err = errors.Join(err, client.Close())
		}
		return nil, false, err
	}
	return client, own, nil
}

// errRedisRing refuses a client that spreads keys over independent servers.
var errRedisRing = errors.New("queue: a redis.Ring spreads keys over servers that know nothing of one another; want a Redis, one with Sentinel, or a Cluster")

// checkContext refuses a nil context.
func checkContext(ctx context.Context) error {
	if ctx == nil {
		return errors.New("queue: ctx: want a context, have nil")
	}
	return nil
}

// checkNil refuses a nil client.
func checkNil(rdb redis.Scripter) error {
	if lockredis.None(rdb) {
		return fmt.Errorf("queue: redis: want a client, such as one made by Redis, have %s", lockredis.Nothing(rdb))
	}
	return nil
}

// checkClient refuses a nil client and a redis.Ring.
func checkClient(rdb redis.Scripter) error {
	if err := checkNil(rdb); err != nil {
		return err
	}
	if _, spreads := rdb.(*redis.Ring); spreads {
		return errRedisRing
	}
	return nil
}
