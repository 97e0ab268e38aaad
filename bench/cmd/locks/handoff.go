package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sidingq/siding/internal/sleep"
)

const (
	// arrival is the time over which waiters arrive, so that those who poll do
	// not do it in step.
	arrival = 100 * time.Millisecond
	// settled is how long the lock is held after the last has arrived. Up to one arrival is added,
	// so that a release falls anywhere between two polls.
	settled = 50 * time.Millisecond
)

// pass has locks go from one of so many waiters to the next until each has had it once. It returns how
// long each hand-off took, from the release until the next one had the lock, and how many acquisitions
// there were. With few waiters per lock several locks are watched at once.
func pass(ctx context.Context, clients []client, waiters, least int) (took []time.Duration, acquisitions int, _ error) {
	locks := max(1, atOnce/waiters)
	for len(took) < least {
		drains := make([]*drain, locks)
		all, work := errgroup.WithContext(ctx)
		for i := range drains {
			d := &drain{clients: clients, name: "hand-off:" + rand.Text(), start: time.Now()}
			drains[i] = d
			all.Go(func() error { return d.run(work, waiters) })
		}
		if err := all.Wait(); err != nil {
			return nil, 0, err
		}
		for _, d := range drains {
			took = append(took, d.latencies...)
			acquisitions += 1 + waiters
		}
	}
	return took, acquisitions, nil
}

// A drain is one lock with one holder and a number of waiters. Each waiter releases the lock as
// soon as it has it, and does not come again.
type drain struct {
	clients []client
	name    string
	start   time.Time

	inside    atomic.Int64
	released  atomic.Int64    // when the last holder called release, since start
	latencies []time.Duration // appended to under the lock itself, which mu makes known to the race detector
	mu        sync.Mutex
}

func (d *drain) run(ctx context.Context, waiters int) error {
	unlock, err := d.enter(ctx, d.clients[0])
	if err != nil {
		return err
	}
	all, ctx := errgroup.WithContext(ctx)
	var arrived sync.WaitGroup
	for i := range waiters {
		arrived.Add(1)
		all.Go(func() error {
			err := sleep.For(ctx, mathrand.N(arrival))
			arrived.Done()
			if err != nil {
				return err
			}
			return d.wait(ctx, d.clients[(i+1)%len(d.clients)])
		})
	}
	arrived.Wait()
	if err := sleep.For(ctx, settled+mathrand.N(arrival)); err != nil {
		return errors.Join(err, all.Wait())
	}
	return errors.Join(d.leave(ctx, unlock), all.Wait())
}

// wait is the life of a waiter.
func (d *drain) wait(ctx context.Context, l client) error {
	unlock, err := d.enter(ctx, l)
	if err != nil {
		return err
	}
	latency := time.Since(d.start) - time.Duration(d.released.Load())
	d.mu.Lock()
	d.latencies = append(d.latencies, latency)
	d.mu.Unlock()
	return d.leave(ctx, unlock)
}

// enter takes the lock and checks that nobody else is inside.
func (d *drain) enter(ctx context.Context, l client) (func(context.Context) error, error) {
	unlock, err := l.Lock(ctx, d.name)
	if err != nil {
		return nil, err
	}
	if n := d.inside.Add(1); n != 1 {
		return nil, fmt.Errorf("%d hold the lock at once", n)
	}
	return unlock, nil
}

func (d *drain) leave(ctx context.Context, unlock func(context.Context) error) error {
	d.inside.Add(-1)
	d.released.Store(int64(time.Since(d.start)))
	return unlock(ctx)
}
