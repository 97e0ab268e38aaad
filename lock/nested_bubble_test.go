package lock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
)

// Two pairs of callers take two locks in opposite order, and all wait alike. One of each pair gets both. One that polls may
// come too late for that if the other gave up just before its own wait ended, which is rare.
func TestNestedLocksInOppositeOrder(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		opts *lock.Options
		rare int // of 40 pairs
	}{
		"queued":   {&lock.Options{Wait: 3 * time.Second}, 0},
		"by retry": {&lock.Options{Wait: 3 * time.Second, Retry: lock.Fixed(10 * time.Millisecond)}, 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				memory, opts, none := locktest.NewMemory(), tc.opts, 0
				for round := range 20 {
					through := make(map[string]*atomic.Int32)
					var all sync.WaitGroup
					for _, pair := range []string{"a", "b"} {
						n := &atomic.Int32{}
						through[pair] = n
						one, two := pair+fmt.Sprint(round, 1), pair+fmt.Sprint(round, 2)
						var both sync.WaitGroup // both have their first
						both.Add(2)
						for _, order := range [][2]string{{one, two}, {two, one}} {
							locker := lockerOn(t, memory)
							all.Go(func() {
								_ = locker.Do(t.Context(), order[0], opts, func(ctx context.Context) error {
									both.Done()
									both.Wait()
									return locker.Do(ctx, order[1], opts, func(context.Context) error {
										n.Add(1)
										return nil
									})
								})
							})
						}
					}
					all.Wait()
					for _, n := range through {
						if n.Load() == 0 {
							none++
						}
					}
				}
				if none > tc.rare {
					t.Errorf("want one of each pair to get both locks, have none of %d pairs", none)
				}
			})
		})
	}
}

// A wait under no lock lasts as long as it says; one under a lock, and after its release, no longer than that.
func TestNestedWaitIsShorter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		acquire(t, lockerOn(t, f.memory), nil)
		locker := lockerOn(t, f.memory)
		outer, err := locker.Acquire(t.Context(), "outer", nil)
		must(t, err)
		work := outer.Context(t.Context())
		wait := func(ctx context.Context) time.Duration {
			start := time.Now()
			_, err := locker.Acquire(ctx, "order:1", &lock.Options{Wait: 4 * time.Second})
			wantBusy(t, "acquire", err)
			return time.Since(start)
		}
		if took := wait(t.Context()); took != 4*time.Second {
			t.Errorf("want a wait of 4s under no lock, have %v", took)
		}
		if took := wait(work); took < 3*time.Second || took >= 4*time.Second {
			t.Errorf("want a wait of 3s to 4s under a lock, have %v", took)
		}
		must(t, outer.Release(t.Context()))
		if took := wait(context.WithoutCancel(work)); took != 4*time.Second {
			t.Errorf("want a wait of 4s after the release, have %v", took)
		}
	})
}

// A wait that ends while the store is out of reach says so, and not that the lock is busy, however long ago that was heard.
func TestWaitEndsDuringAnOutage(t *testing.T) {
	t.Parallel()
	type outage struct {
		fault locktest.Fault // from 4.5 s on
		busy  bool
	}
	for name, opts := range map[string]lock.Options{
		"queued":          {Wait: 5 * time.Second},
		"by a slow retry": {Wait: 5 * time.Second, Retry: lock.Fixed(4 * time.Second)},
		"by a deadline":   {Wait: lock.Forever},
	} {
		inBubbles(t, map[string]outage{
			name + ", refused": {fault: locktest.Refuse},
			name + ", hanging": {fault: locktest.BlackHole},
			name + ", slow":    {fault: locktest.Slow(500 * time.Millisecond), busy: true},
			name + ", well":    {fault: locktest.Fine, busy: true},
		}, func(t *testing.T, tc outage) {
			t.Helper()
			f := newFake()
			acquire(t, lockerOn(t, f.memory), nil)
			locker, ctx := lockerOn(t, f.Store), t.Context()
			if opts.Wait == lock.Forever {
				bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
				defer cancel()
				ctx = bounded
			}
			start := time.Now()
			var all sync.WaitGroup
			for range 3 { // of which two wait behind the first
				all.Go(func() {
					_, err := locker.Acquire(ctx, "order:1", &opts)
					if err == nil || errors.Is(err, lock.ErrBusy) != tc.busy {
						t.Errorf("want ErrBusy %t, have %v", tc.busy, err)
					}
					if took := time.Since(start); took < 5*time.Second || took > 8400*time.Millisecond {
						t.Errorf("want the end of the wait, have %v", took)
					}
				})
			}
			time.Sleep(4500 * time.Millisecond)
			f.Set(tc.fault)
			all.Wait()
			f.Set(locktest.Fine)
		})
	}
}

// A caller that goes away waits for no answer of the store.
func TestWaitCancelledDuringAnOutage(t *testing.T) {
	t.Parallel()
	inBubbles(t, map[string]lock.Options{
		"queued":          {Wait: 20 * time.Second},
		"by a slow retry": {Wait: 20 * time.Second, Retry: lock.Fixed(4 * time.Second)},
	}, func(t *testing.T, opts lock.Options) {
		t.Helper()
		f := newFake()
		acquire(t, lockerOn(t, f.memory), nil)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(4500*time.Millisecond, func() { f.Set(locktest.BlackHole) })
		time.AfterFunc(5*time.Second, cancel)
		start := time.Now()
		if _, err := lockerOn(t, f.Store).Acquire(ctx, "order:1", &opts); !errors.Is(err, context.Canceled) || time.Since(start) != 5*time.Second {
			t.Errorf("want context.Canceled after 5 s, have %v after %v", err, time.Since(start))
		}
		f.Set(locktest.Fine)
	})
}
