package locking

import (
	"context"

	"github.com/sidingq/siding/lock"
)

type sidingClient struct {
	locker *lock.Locker
	wait   lock.Wait
	closer func() error
}

// Siding returns a client with a Locker of ours, with defaults, whose callers wait that way. What the
// store is made on is closed with it by closer.
func Siding(store lock.Store, wait lock.Wait, closer func() error) (Client, error) {
	l, err := lock.New(store, lock.Config{})
	if err != nil {
		return nil, err
	}
	return sidingClient{l, wait, closer}, nil
}

func (c sidingClient) Lock(ctx context.Context, name string) (func(context.Context) error, error) {
	lease, err := c.locker.Acquire(ctx, name, &lock.Options{Wait: c.wait})
	if err != nil {
		return nil, err
	}
	return lease.Release, nil
}

func (c sidingClient) Close() error {
	c.locker.Close()
	return c.closer()
}
