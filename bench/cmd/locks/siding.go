package main

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/lock"
)

type sidingLocker struct {
	client *redis.Client
	locker *lock.Locker
}

// openSiding returns what opens a Locker of ours whose callers wait that way.
func openSiding(wait lock.Wait) func(addr string) (locker, error) {
	return func(addr string) (locker, error) {
		client := redis.NewClient(&redis.Options{Addr: addr})
		l, err := lock.New(lock.Redis(client), lock.Config{})
		if err != nil {
			return nil, errors.Join(err, client.Close())
		}
		return sidingLocker{client, l.With(lock.Options{Wait: wait})}, nil
	}
}

func (l sidingLocker) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	lease, err := l.locker.Acquire(ctx, name)
	if err != nil {
		return nil, err
	}
	return lease.Release, nil
}

func (l sidingLocker) close() error {
	l.locker.Close()
	return l.client.Close()
}
