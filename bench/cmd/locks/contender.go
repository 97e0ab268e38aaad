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

	"github.com/sidingq/siding/lock"
)

// A contender is one library in one configuration.
type contender struct {
	name string
	// module is where its code comes from, and config how it is set up: for readers.
	module, config string
	// direct are the commands that it sends by themselves. All others that it
	// causes are sent from within its scripts.
	direct []string
	// open makes a client with connections of its own, as a process has one.
	open func(addr string) (locker, error)
}

func (c contender) called() string { return c.name }

// A locker is one client of a contender.
type locker interface {
	// lock waits for the lock of name until ctx ends.
	lock(ctx context.Context, name string) (unlock func(context.Context) error, err error)
	close() error
}

// contenders returns all there are, set up as their documentation recommends
// for one Redis.
func contenders() []contender {
	return []contender{
		{
			name: "siding", module: "github.com/sidingq/siding", config: "InLine, defaults: TTL 15 s",
			direct: []string{"subscribe", "unsubscribe"},
			open:   openSiding(lock.InLine()),
		},
		{
			name: "siding-poll", module: "github.com/sidingq/siding", config: "Fixed(100 ms) for a comparison with redislock, defaults: TTL 15 s",
			open: openSiding(lock.Fixed(100 * time.Millisecond)),
		},
		{
			name: "redsync", module: "github.com/go-redsync/redsync/v4", config: "defaults: expiry 8 s, tries every 50 to 250 ms, at random",
			direct: []string{"set"},
			open:   openRedsync,
		},
		{
			name: "redislock", module: "github.com/bsm/redislock", config: "TTL 10 s, LinearBackoff(100ms) as in its example",
			open: openRedislock,
		},
		{
			name: "rueidislock", module: "github.com/redis/rueidis", config: "KeyMajority 1 and NoLoopTracking as in its README, defaults: validity 5 s, client side caching",
			open: openRueidislock,
		},
	}
}

type redsyncLocker struct {
	client *redis.Client
	*redsync.Redsync
}

func openRedsync(addr string) (locker, error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	return redsyncLocker{client, redsync.New(goredis.NewPool(client))}, nil
}

func (l redsyncLocker) lock(ctx context.Context, name string) (func(context.Context) error, error) {
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
		// It gave up after its 32 tries: the caller's turn to try again.
	}
}

func (l redsyncLocker) close() error { return l.client.Close() }

type redislockLocker struct {
	client *redis.Client
	*redislock.Client
}

func openRedislock(addr string) (locker, error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	return redislockLocker{client, redislock.New(client)}, nil
}

func (l redislockLocker) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	held, err := l.Obtain(ctx, name, 10*time.Second, &redislock.Options{
		RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond),
	})
	if err != nil {
		return nil, err
	}
	return held.Release, nil
}

func (l redislockLocker) close() error { return l.client.Close() }

type rueidisLocker struct{ rueidislock.Locker }

func openRueidislock(addr string) (locker, error) {
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{addr}},
		KeyMajority:    1,
		NoLoopTracking: true,
	})
	return rueidisLocker{l}, err
}

// lock tries again after a second without the lock. WithContext waits for word
// from Redis alone, and on a busy machine was seen to wait for ever: a try that did
// not get through within TryNextAfter (20 ms) has not told Redis that it waits.
func (l rueidisLocker) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	for {
		try, cancel := context.WithCancel(ctx)
		impatience := time.AfterFunc(time.Second, cancel)
		_, unlock, err := l.WithContext(try, name)
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

func (l rueidisLocker) close() error {
	l.Close()
	return nil
}
