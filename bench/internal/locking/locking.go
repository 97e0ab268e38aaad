// Package locking puts locks of different libraries through the same work, and measures it.
package locking

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sidingq/siding/bench/internal/contest"
)

// limit bounds one case of one contender: in that time all must have had the lock.
const limit = time.Minute

// Goroutines is how many take uncontended locks at once.
const Goroutines = 16

// A Client is one client of a contender.
type Client interface {
	// Lock waits for the lock of name until ctx ends.
	Lock(ctx context.Context, name string) (unlock func(context.Context) error, err error)
	Close() error
}

// A Contender is one library in one configuration.
type Contender struct {
	Name string
	// Module is where its code comes from, and Config how it is set up: for readers.
	Module, Config string
	// Open makes a client with connections of its own, as a process has one, of the
	// servers at addrs.
	Open func(ctx context.Context, addrs []string) (Client, error)
}

// Called returns its name.
func (c Contender) Called() string { return c.Name }

// WriteSetting writes a line about the contender.
func (c Contender) WriteSetting(w io.Writer) error {
	_, err := fmt.Fprintf(w, "  %s: %s; %s\n", c.Name, strings.TrimSpace(c.Module+" "+contest.Version(c.Module)), c.Config)
	return err
}

// Run opens so many clients, lets each load its scripts, and measures, for a minute in all at most.
func (c Contender) Run(ctx context.Context, addrs []string, clients int, measure func(context.Context, []Client) error) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errors.New("not all had the lock in time"))
	defer cancel()
	var opened []Client
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
		l, err := c.Open(ctx, addrs)
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
func visit(ctx context.Context, l Client, name string) error {
	unlock, err := l.Lock(ctx, name)
	if err != nil {
		return err
	}
	return unlock(ctx)
}

// Uncontended lets so many goroutines of one client each lock a separate name, so often. It returns
// how long that took.
func Uncontended(ctx context.Context, l Client, goroutines, times int) (time.Duration, error) {
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
