package locking

import (
	"context"

	"github.com/sidingq/siding/lock"
)

type sidingClient struct {
	locker *lock.Locker
	opts   lock.Options
	closer func() error
}

// Siding returns a client with a Locker of ours, with defaults, whose callers have these options.
// closer closes the clients on which the store is made.
func Siding(store lock.Store, opts lock.Options, closer func() error) (Client, error) {
	l, err := lock.New(store, lock.Config{})
	if err != nil {
		return nil, err
	}
	return sidingClient{l, opts, closer}, nil
}

func (c sidingClient) Lock(ctx context.Context, name string) (func(context.Context) error, error) {
	lease, err := c.locker.Acquire(ctx, name, &c.opts)
	if err != nil {
		return nil, err
	}
	return lease.Release, nil
}

func (c sidingClient) Close() error {
	c.locker.Close()
	return c.closer()
}
