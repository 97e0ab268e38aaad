package main

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/sidingq/siding/bench/internal/locking"
	"github.com/sidingq/siding/lock"
)

// A contender is one library in one configuration.
type contender struct {
	locking.Contender

	// direct are the commands that it sends by themselves. All others that it
	// causes are sent from within its scripts.
	direct []string
}

// contenders returns all there are, set up as their documentation recommends
// for one Redis.
func contenders() []contender {
	return []contender{
		{
			Contender: locking.Contender{
				Name: "siding", Module: "github.com/sidingq/siding", Config: "wait queue, defaults: TTL 15 s",
				Open: openSiding(lock.Options{Wait: lock.Forever}),
			},
			direct: []string{"subscribe", "unsubscribe"},
		},
		{Contender: locking.Contender{
			Name: "siding-poll", Module: "github.com/sidingq/siding", Config: "Fixed(100 ms) for a comparison with redislock, defaults: TTL 15 s",
			Open: openSiding(lock.Options{Wait: lock.Forever, Retry: lock.Fixed(100 * time.Millisecond)}),
		}},
		{
			Contender: locking.Contender{
				Name: "redsync", Module: "github.com/go-redsync/redsync/v4", Config: "defaults: expiry 8 s, tries every 50 to 250 ms, at random",
				Open: openRedsync,
			},
			direct: []string{"set"},
		},
		{Contender: locking.Contender{
			Name: "redislock", Module: "github.com/bsm/redislock", Config: "TTL 10 s, LinearBackoff(100ms) as in its example",
			Open: openRedislock,
		}},
		{Contender: locking.Contender{
			Name: "rueidislock", Module: "github.com/redis/rueidis",
			Config: "KeyMajority 1 and NoLoopTracking as in its README, defaults: validity 5 s, client side caching",
			Open:   openRueidislock,
		}},
	}
}

// openSiding returns what opens a Locker of ours whose callers wait that way.
func openSiding(opts lock.Options) func(context.Context, []string) (locking.Client, error) {
	return func(_ context.Context, addrs []string) (locking.Client, error) {
		client := redis.NewClient(&redis.Options{Addr: addrs[0]})
		return locking.Siding(lock.Redis(client), opts, client.Close)
	}
}

func openRedsync(_ context.Context, addrs []string) (locking.Client, error) {
	return locking.Redsync(locking.Nodes(addrs, redis.Options{})), nil
}

type redislockLocker struct {
	client *redis.Client
	*redislock.Client
}

func openRedislock(_ context.Context, addrs []string) (locking.Client, error) {
	client := redis.NewClient(&redis.Options{Addr: addrs[0]})
	return redislockLocker{client, redislock.New(client)}, nil
}

func (l redislockLocker) Lock(ctx context.Context, name string) (func(context.Context) error, error) {
	held, err := l.Obtain(ctx, name, 10*time.Second, &redislock.Options{
		RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond),
	})
	if err != nil {
		return nil, err
	}
	return held.Release, nil
}

func (l redislockLocker) Close() error { return l.client.Close() }

type rueidisLocker struct{ locker rueidislock.Locker }

func openRueidislock(_ context.Context, addrs []string) (locking.Client, error) {
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: addrs},
		KeyMajority:    1,
		NoLoopTracking: true,
	})
	return rueidisLocker{l}, err
}

// Lock tries again after a second without the lock. WithContext waits for a message of Redis alone,
// and on a busy machine was seen to wait for ever. A try that did not get through within
// TryNextAfter (20 ms) has not told Redis that it waits.
func (l rueidisLocker) Lock(ctx context.Context, name string) (func(context.Context) error, error) {
	for {
		try, cancel := context.WithCancel(ctx)
		impatience := time.AfterFunc(time.Second, cancel)
		_, unlock, err := l.locker.WithContext(try, name)
		switch {
		case err == nil && impatience.Stop():
			return func(context.Context) error {
				unlock()
				cancel()
				return nil
			}, nil
		case err == nil:
			unlock() // it came as the second ended, and is lost with its context
		}
		cancel()
		if ctx.Err() != nil || (err != nil && !errors.Is(err, context.Canceled)) {
			return nil, errors.Join(err, context.Cause(ctx))
		}
	}
}

func (l rueidisLocker) Close() error {
	l.locker.Close()
	return nil
}
