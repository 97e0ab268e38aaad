package interop_test

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// A peer is how another program locks. The adapters of peers try once and never wait.
type peer interface {
	// Take takes the lock at key for ttl.
	Take(ctx context.Context, key string) (held, error)
	// IsTaken reports whether Take failed because somebody else holds the lock.
	IsTaken(err error) bool
	// IsLost reports whether a method of held failed because the peer had lost the lock.
	IsLost(err error) bool
}

// held is one lock that a peer has taken.
type held interface {
	// Extend lets the lock live for ttl from now.
	Extend(ctx context.Context) error
	Release(ctx context.Context) error
}

// ttl is the TTL of all locks. ttl is long, as redsync gives a call to Redis no more than a
// twentieth of the TTL.
const ttl = 30 * time.Second

// peers are the programs that every test runs against.
var peers = []struct {
	name string
	on   func(*redis.Client) peer
}{
	{"redsync", func(rdb *redis.Client) peer { return redsyncPeer{redsync.New(goredis.NewPool(rdb))} }},
	{"redislock", func(rdb *redis.Client) peer { return redislockPeer{redislock.New(rdb)} }},
}

// redsyncPeer is a program that uses github.com/go-redsync/redsync.
type redsyncPeer struct{ *redsync.Redsync }

func (p redsyncPeer) Take(ctx context.Context, key string) (held, error) {
	m := p.NewMutex(key, redsync.WithExpiry(ttl))
	if err := m.TryLockContext(ctx); err != nil {
		return nil, err
	}
	return redsyncHeld{m}, nil
}

func (redsyncPeer) IsTaken(err error) bool {
	var taken *redsync.ErrTaken
	return errors.As(err, &taken)
}

func (redsyncPeer) IsLost(err error) bool {
	// redsync has one error for an expired lock, another for a lock that somebody else has.
	return errors.Is(err, redsync.ErrLockAlreadyExpired) || redsyncPeer{}.IsTaken(err)
}

type redsyncHeld struct{ *redsync.Mutex }

func (h redsyncHeld) Extend(ctx context.Context) error {
	_, err := h.ExtendContext(ctx)
	return err
}

func (h redsyncHeld) Release(ctx context.Context) error {
	_, err := h.UnlockContext(ctx)
	return err
}

// redislockPeer is a program that uses github.com/bsm/redislock.
type redislockPeer struct{ *redislock.Client }

func (p redislockPeer) Take(ctx context.Context, key string) (held, error) {
	l, err := p.Obtain(ctx, key, ttl, nil)
	if err != nil {
		return nil, err
	}
	return redislockHeld{l}, nil
}

func (redislockPeer) IsTaken(err error) bool { return errors.Is(err, redislock.ErrNotObtained) }

func (redislockPeer) IsLost(err error) bool {
	return errors.Is(err, redislock.ErrLockNotHeld) || errors.Is(err, redislock.ErrNotObtained)
}

type redislockHeld struct{ *redislock.Lock }

func (h redislockHeld) Extend(ctx context.Context) error { return h.Refresh(ctx, ttl, nil) }
