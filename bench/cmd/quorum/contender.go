package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sidingq/siding/bench/internal/locking"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/etcdlock"
	"github.com/sidingq/siding/lock/redlock"
)

// A contender is one library in one configuration, on one system.
type contender struct {
	locking.Contender

	on system
	// hungOnly says that the contender is another one's equal as long as all nodes answer.
	hungOnly bool
	// hung is how often it is asked, at most, while a node hangs; 0 for never.
	hung int
}

// hungTimes is how often one is asked that waits for a fraction of a second then.
const hungTimes = 10

// timeouts are for how long one waits for a Redis node that may hang: the defaults of each.
type timeouts struct{ redlock, redsync time.Duration }

// redsyncExpiry is its default, and by its default a lock waits for a node for 0.05 of that.
const redsyncExpiry = 8 * time.Second

func defaultTimeouts() timeouts {
	return timeouts{redlock: 50 * time.Millisecond, redsync: redsyncExpiry / 20}
}

// contenders returns all there are, set up as their documentation recommends. Their names begin
// with what they are on.
func contenders(wait timeouts) []contender {
	const (
		siding = "github.com/sidingq/siding"
		rs     = "github.com/go-redsync/redsync/v4"
		etcd   = "go.etcd.io/etcd/client/v3"
	)
	all := []contender{
		{on: system{redisNodes, 1}, Contender: locking.Contender{
			Name: "siding", Module: siding, Config: "lock.Redis, wait queue, defaults: TTL 15 s", Open: openSiding,
		}},
		{on: system{redisNodes, 5}, hung: hungTimes, Contender: locking.Contender{
			Name: "siding", Module: siding, Open: openRedlock(wait.redlock),
			Config: fmt.Sprintf("redlock with NoRestartDelay as no node restarts here, NodeTimeout %v, waits in the wait queue, defaults: TTL 15 s", wait.redlock),
		}},
		{on: system{redisNodes, 5}, hung: hungTimes, Contender: locking.Contender{
			Name: "redsync", Module: rs, Open: openRedsync(wait.redsync),
			Config: fmt.Sprintf("clients with ContextTimeoutEnabled, MaxRetries -1 and DialerRetries 1, %v for the nodes of a lock and of an unlock, "+
				"defaults: expiry 8 s, tries every 50 to 250 ms, at random", wait.redsync),
		}},
		{on: system{redisNodes, 5}, hung: hungTimes, Contender: locking.Contender{
			Name: "redsync-failfast", Module: rs, Open: openRedsync(wait.redsync, redsync.WithFailFast(true)),
			Config: "the same WithFailFast: goes on as soon as a majority has answered",
		}},
		{on: system{redisNodes, 5}, hung: 1, hungOnly: true, Contender: locking.Contender{
			Name: "redsync-defaults", Module: rs, Open: openRedsyncDefaults,
			Config: "clients and all else with defaults: ReadTimeout 5 s",
		}},
	}
	for _, members := range []int{1, 3} {
		on := system{etcdMembers, members}
		all = append(
			all,
			contender{on: on, Contender: locking.Contender{
				Name: "siding", Module: siding, Config: "etcdlock, waits in the wait queue, defaults: TTL 15 s", Open: openEtcdlock,
			}},
			contender{on: on, Contender: locking.Contender{
				Name: "session", Module: etcd, Open: openSession,
				Config: "concurrency.Mutex with a Session for each acquisition, defaults: TTL 60 s",
			}},
			contender{on: on, Contender: locking.Contender{
				Name: "shared-session", Module: etcd, Open: openSharedSession,
				Config: "concurrency.Mutex with a Session for each process, whose goroutines take turns by a channel, defaults: TTL 60 s",
			}},
		)
	}
	for i := range all {
		all[i].Name = all[i].on.String() + "-" + all[i].Name
	}
	return all
}

func openSiding(_ context.Context, addrs []string) (locking.Client, error) {
	client := redis.NewClient(&redis.Options{Addr: addrs[0]})
	return locking.Siding(lock.Redis(client), lock.Options{Wait: lock.Forever}, client.Close)
}

// bounded are the options of clients whose calls end in time, as redlock asks for.
func bounded() redis.Options {
	return redis.Options{ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1}
}

func openRedlock(timeout time.Duration) func(context.Context, []string) (locking.Client, error) {
	// Whether the nodes have just started is asked all the same.
	cfg := redlock.Config{NodeTimeout: timeout, RestartDelay: redlock.NoRestartDelay}
	return func(ctx context.Context, addrs []string) (locking.Client, error) {
		nodes := locking.Nodes(addrs, bounded())
		closer := func() error { return locking.CloseNodes(nodes) }
		store, err := redlock.New(ctx, nodes, cfg)
		if err != nil {
			return nil, errors.Join(err, closer())
		}
		return locking.Siding(store, lock.Options{Wait: lock.Forever}, closer)
	}
}

func openRedsync(timeout time.Duration, options ...redsync.Option) func(context.Context, []string) (locking.Client, error) {
	options = append(options, redsync.WithExpiry(redsyncExpiry), redsync.WithTimeoutFactor(float64(timeout)/float64(redsyncExpiry)))
	return func(_ context.Context, addrs []string) (locking.Client, error) {
		return hastyUnlock{locking.Redsync(locking.Nodes(addrs, bounded()), options...), timeout}, nil
	}
}

func openRedsyncDefaults(_ context.Context, addrs []string) (locking.Client, error) {
	return locking.Redsync(locking.Nodes(addrs, redis.Options{})), nil
}

// hastyUnlock is a client whose unlocks end in time, which redsync leaves to its caller.
type hastyUnlock struct {
	locking.Client

	timeout time.Duration
}

func (c hastyUnlock) Lock(ctx context.Context, name string) (func(context.Context) error, error) {
	unlock, err := c.Client.Lock(ctx, name)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, c.timeout)
		defer cancel()
		return unlock(ctx)
	}, nil
}

func openEtcdlock(_ context.Context, addrs []string) (locking.Client, error) {
	client, err := newEtcd(addrs)
	if err != nil {
		return nil, err
	}
	return locking.Siding(etcdlock.New(client), lock.Options{Wait: lock.Forever}, client.Close)
}

func newEtcd(addrs []string) (*clientv3.Client, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: addrs})
	if err != nil {
		return nil, fmt.Errorf("a client of etcd: %w", err)
	}
	return client, nil
}
