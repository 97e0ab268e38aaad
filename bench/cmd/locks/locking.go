package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// limit bounds one case of one contender: in that time all must have had the lock.
const limit = time.Minute

// A client is one client of a contender.
type client interface {
	// Lock waits for the lock of name until ctx ends.
	Lock(ctx context.Context, name string) (unlock func(context.Context) error, err error)
	Close() error
}

// run opens so many clients, lets each load its scripts, and measures, for a minute in all at most.
func (c contender) run(ctx context.Context, addr string, clients int, measure func(context.Context, []client) error) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errors.New("not all had the lock in time"))
	defer cancel()
	var opened []client
	defer func() {
		for _, l := range opened {
			err = errors.Join(err, l.Close())
		}
	}()
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}()
	for range clients {
		l, err := c.open(addr)
		if err != nil {
			return err
		}
		opened = append(opened, l)
		if err := visit(ctx, l, "warm-up:"+rand.Text()); err != nil {
			return err
		}
	}
	return measure(ctx, opened)
}

// visit takes a lock that is free and gives it back.
func visit(ctx context.Context, l client, name string) error {
	unlock, err := l.Lock(ctx, name)
	if err != nil {
		return err
	}
	return unlock(ctx)
}

// uncontended lets so many goroutines of one client each lock a separate name, so often. It returns
// how long that took.
func uncontended(ctx context.Context, l client, goroutines, times int) (time.Duration, error) {
	all, ctx := errgroup.WithContext(ctx)
	start := time.Now()
	for range goroutines {
		all.Go(func() error {
			name := "uncontended:" + rand.Text()
			for range times {
				if err := visit(ctx, l, name); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := all.Wait()
	return time.Since(start), err
}
