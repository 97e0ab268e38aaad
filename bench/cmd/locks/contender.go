package main

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/sidingq/siding/bench/internal/contest"
	"github.com/sidingq/siding/lock"
)

// A contender is one library in one configuration.
type contender struct {
	contest.Entry

	// open makes a client with connections of its own, as a process has one.
	open func(addr string) (client, error)
	// direct are the commands that it sends by themselves. All others that it
	// causes are sent from within its scripts.
	direct []string
}

// contenders returns all there are, set up as their documentation recommends
// for one Redis.
func contenders() []contender {
	of := func(name, module, config string, open func(addr string) (client, error), direct ...string) contender {
		return contender{contest.Entry{Name: name, Modules: []string{module}, About: config}, open, direct}
	}
	return []contender{
		of("siding", "github.com/sidingq/siding", "wait queue, defaults: TTL 15 s", openSiding(lock.Options{Wait: lock.Forever}), "subscribe", "unsubscribe"),
		of("siding-poll", "github.com/sidingq/siding", "Fixed(100 ms) for a comparison with redislock, defaults: TTL 15 s",
			openSiding(lock.Options{Wait: lock.Forever, Retry: lock.Fixed(100 * time.Millisecond)})),
		of("redsync", "github.com/go-redsync/redsync/v4", "defaults: expiry 8 s, tries every 50 to 250 ms, at random", openRedsync, "set"),
		of("redislock", "github.com/bsm/redislock", "TTL 10 s, LinearBackoff(100ms) as in its example", openRedislock),
		of("rueidislock", "github.com/redis/rueidis", "KeyMajority 1 and NoLoopTracking as in its README, defaults: validity 5 s, client side caching", openRueidislock),
	}
}

type sidingLocker struct {
	client *redis.Client
	*lock.Locker

	opts lock.Options
}

// openSiding returns what opens a Locker of ours whose callers wait that way.
func openSiding(opts lock.Options) func(string) (client, error) {
	return func(addr string) (client, error) {
		client := redis.NewClient(&redis.Options{Addr: addr})
		l, err := lock.New(lock.Redis(client), lock.Config{})
		return sidingLocker{client, l, opts}, err
	}
}

func (l sidingLocker) Lock(ctx context.Context, name string) (func(context.Context) error, error) {
	lease, err := l.Acquire(ctx, name, &l.opts)
	if err != nil {
		return nil, err
	}
	return lease.Release, nil
}

func (l sidingLocker) Close() error {
	l.Locker.Close()
	return l.client.Close()
}

type redsyncLocker struct {
	client *redis.Client
	*redsync.Redsync
}

func openRedsync(addr string) (client, error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	return redsyncLocker{client, redsync.New(goredis.NewPool(client))}, nil
}

func (l redsyncLocker) Lock(ctx context.Context, name string) (func(context.Context) error, error) {
	m := l.NewMutex(name)
	for {
		err := m.LockContext(ctx)
		var taken *redsync.ErrTaken
		switch {
		case err == nil:
			return func(ctx context.Context) error {
				_, err := m.UnlockContext(ctx)
				return err
			}, nil
		case ctx.Err() != nil || !errors.As(err, &taken):
			return nil, err
		}
		// redsync gave up after its 32 tries: try again.
	}
}

func (l redsyncLocker) Close() error { return l.client.Close() }

type redislockLocker struct {
	client *redis.Client
	*redislock.Client
}

func openRedislock(addr string) (client, error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
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

func openRueidislock(addr string) (client, error) {
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{addr}},
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
