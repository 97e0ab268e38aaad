package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/lock"
)

// A fleet runs tasks that contend for one resource, as a queue does. Busy ones wait to be woken, or
// for their fallback times. Some are never woken, some do not come, and some die while they hold
// the lock.
type fleet struct {
	*setup
	mayDie *setup // of a locker with a short TTL, for those who die

	mu    sync.Mutex
	calls map[string]chan struct{} // who can be woken

	inside atomic.Int64
	last   atomic.Int64 // the last fence seen inside
	woken  atomic.Int64
}

// call wakes the waiter of r, or whoever comes after it.
func (f *fleet) call(ctx context.Context, rng *rand.Rand, r *store.Reservation) error {
	for r != nil {
		f.mu.Lock()
		woken := f.calls[r.Waiter]
		f.mu.Unlock()
		if woken == nil || rng.IntN(10) == 0 { // as if it could not come
			var err error
			if r, err = f.Drop(ctx, r, false); err != nil {
				return err
			}
			continue
		}
		if rng.IntN(20) == 0 {
			return nil // the caller died in between: the reservation expires
		}
		if err := f.Confirm(ctx, r); err != nil {
			return err
		}
		f.woken.Add(1)
		select {
		case woken <- struct{}{}:
		default:
		}
		return nil
	}
	return nil
}

// run is the life of one task.
func (f *fleet) run(ctx context.Context, rng *rand.Rand, name string) error {
	woken := make(chan struct{}, 1)
	f.mu.Lock()
	f.calls[name] = woken
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.calls, name)
	}()
	died := false
	for {
		client, dies := f.Client, !died && rng.IntN(20) == 0
		if dies {
			client = f.mayDie.Client
		}
		held, err := client.Acquire(ctx, lease.Request{Resource: f.res, Waiter: name})
		var busy *lease.BusyError
		switch {
		case errors.As(err, &busy):
			if err := f.call(ctx, rng, busy.Next); err != nil {
				return err
			}
		case dies: // with the lock or with an answer too late; it comes again, as a crashed task does
			died = true
			if held != nil {
				held.Detach()
			}
		case err == nil:
			return f.work(ctx, rng, held)
		default:
			return err
		}
		timer := time.NewTimer(50*time.Millisecond + time.Duration(rng.Int64N(int64(50*time.Millisecond))))
		select {
		case <-woken:
		case <-timer.C:
		case <-ctx.Done():
			return fmt.Errorf("%s starved: %w", name, ctx.Err())
		}
		timer.Stop()
	}
}

// work checks that it is alone and that its fence is the highest so far.
func (f *fleet) work(ctx context.Context, rng *rand.Rand, held *lease.Lease) error {
	if n := f.inside.Add(1); n != 1 {
		return fmt.Errorf("want one holder, have %d", n)
	}
	if last := f.last.Swap(held.Fence()); last >= held.Fence() {
		return fmt.Errorf("want a fence above %d, have %d", last, held.Fence())
	}
	f.inside.Add(-1)
	r, err := held.HandOff(ctx)
	if err != nil {
		return err
	}
	return f.call(ctx, rng, r)
}

// TestFleet runs all to success, one at a time, and leaves nothing behind that
// does not expire.
func TestFleet(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		const workers, tasks = 20, 6
		seed := verify.Seed(s)
		f := &fleet{
			setup:  s.with(lock.Config{HandoffTimeout: 50 * time.Millisecond}),
			mayDie: s.with(lock.Config{HandoffTimeout: 50 * time.Millisecond, TTL: 100 * time.Millisecond}),
			calls:  make(map[string]chan struct{}),
		}
		ctx, cancel := context.WithTimeout(s.Context(), 3*patience)
		defer cancel()
		var all sync.WaitGroup
		for w := range workers {
			all.Go(func() {
				rng := rand.New(rand.NewPCG(seed, uint64(w)))
				for i := range tasks {
					if err := f.run(ctx, rng, fmt.Sprintf("task %d of %d", i, w)); err != nil {
						s.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		if f.woken.Load() == 0 {
			s.Error("want some tasks woken, have none")
		}

		// Whatever state is left, also one in the middle: all of it expires.
		f.rdb.Del(s.Context(), f.key, f.row)
		s.reserved("left behind", "also queued")
		s.wantAllExpire()
		s.expire()
		held := s.take("somebody")
		s.wantAllExpire()
		s.release(held)
		s.wantAllExpire()
	})
}

// wantAllExpire checks every key of the resource, whatever its name.
func (s *setup) wantAllExpire() {
	s.Helper()
	keys := s.rdb.Scan(s.Context(), 0, "*"+s.res+"*", 1000).Iterator()
	found := 0
	for keys.Next(s.Context()) {
		ttl := s.rdb.PTTL(s.Context(), keys.Val()).Val()
		if strings.Contains(keys.Val(), ":released:") && ttl != -1 { // or it has just expired
			continue
		}
		found++
		if ttl <= 0 {
			s.Errorf("want %s to expire, have a ttl of %v", keys.Val(), ttl)
		}
	}
	if err := keys.Err(); err != nil || found == 0 || found > 3 {
		s.Errorf("want 1 to 3 keys, have %d, %v", found, err)
	}
}
