package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
)

// Callers in several processes take locks in whatever order they name them. None waits for ever, and no two are at work under
// the same lock.
func TestDoAllEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		memory := locktest.NewMemory()
		names := []string{"a", "b", "c", "d"}
		var mu sync.Mutex
		working := make(map[string]bool)
		var all sync.WaitGroup
		for range 5 {
			locker := lockerOn(t, memory)
			for range 4 {
				resources := slices.Clone(names)
				rand.Shuffle(len(resources), func(i, j int) { resources[i], resources[j] = resources[j], resources[i] })
				resources = resources[:2+rand.N(3)]
				all.Go(func() {
					err := locker.DoAll(t.Context(), resources, &lock.Options{Wait: time.Minute}, func(ctx context.Context) error {
						mu.Lock()
						for _, r := range resources {
							expect.That(t, !working[r], "%s: want nobody else at work", r)
							working[r] = true
							expect.That(t, lock.Fence(ctx, r) != 0, "%s: want a fence", r)
						}
						mu.Unlock()
						time.Sleep(time.Second)
						mu.Lock()
						for _, r := range resources {
							working[r] = false
						}
						mu.Unlock()
						return nil
					})
					expect.That(t, err == nil, "%v: %v", resources, err)
				})
			}
		}
		all.Wait()
		wantAllFree(t, memory, names...)
	})
}

func wantAllFree(tb testing.TB, memory *locktest.Memory, resources ...string) {
	tb.Helper()
	for _, r := range resources {
		expect.Equal(tb, r, memory.Value("lock:"+r), "")
	}
}

// All or none: if one is busy, those that were free are free again.
func TestDoAllOrNone(t *testing.T) {
	t.Parallel()
	type row struct {
		opts lock.Options
		took time.Duration
	}
	inBubbles(t, map[string]row{
		"once":     {lock.Options{}, 0},
		"waiting":  {lock.Options{Wait: 3 * time.Second}, 3 * time.Second},
		"by retry": {lock.Options{Wait: 3 * time.Second, Retry: lock.Fixed(time.Second)}, 3 * time.Second},
	}, func(t bubble, tc row) {
		memory := locktest.NewMemory()
		held, err := lockerOn(t, memory).Acquire(t.Context(), "b", nil)
		expect.OK(t, err)
		locker := lockerOn(t, memory)
		start, resources := time.Now(), []string{"c", "a", "b", "a"}
		err = locker.DoAll(t.Context(), resources, &tc.opts, func(context.Context) error {
			t.Error("want the work not to run")
			return nil
		})
		busy, ok := errors.AsType[*lock.BusyError](err)
		expect.That(t, ok && busy.Resource == "b", "want b busy, have %v", err)
		expect.Equal(t, "time until the answer", time.Since(start), tc.took)
		wantAllFree(t, memory, "a", "c")
		expect.OK(t, held.Release(t.Context()))
		ran := false
		err = locker.DoAll(t.Context(), resources, &tc.opts, func(context.Context) error { ran = true; return nil })
		expect.That(t, err == nil && ran, "want the work done, have %v", err)
	})
}

// If one is lost, the work is told, and the rest is released.
func TestDoAllLosesOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		memory := locktest.NewMemory()
		start := time.Now()
		broken := errors.New("the work stopped")
		err := lockerOn(t, memory).DoAll(t.Context(), []string{"a", "b", "c"}, nil, func(ctx context.Context) error {
			memory.Put("lock:b", "theirs", time.Hour)
			<-ctx.Done()
			wantLost(t, "cause", context.Cause(ctx))
			return broken
		})
		expect.That(t, errors.Is(err, lock.ErrLost) && errors.Is(err, broken), "want ErrLost and the error of the work, have %v", err)
		took := time.Since(start)
		expect.That(t, took <= 5*time.Second, "want the loss seen by the next renewal, have %v", took)
		wantAllFree(t, memory, "a", "c")
	})
}

// A slowStore answers a second late about b.
type slowStore struct{ *locktest.Memory }

func (s slowStore) Acquire(ctx context.Context, r store.Request) (store.Result, error) {
	if r.Key == "lock:b" {
		time.Sleep(time.Second)
	}
	return s.Memory.Acquire(ctx, r)
}

// That a lock was lost while others were asked for is no news of use: there was no work.
func TestDoAllIsBusy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		memory := locktest.NewMemory()
		memory.Put("lock:b", "theirs", time.Hour)
		err := lockerOn(t, slowStore{memory}).DoAll(t.Context(), []string{"a", "b"}, &lock.Options{TTL: 100 * time.Millisecond, NoRenew: true}, func(context.Context) error {
			t.Error("want the work not to run")
			return nil
		})
		expect.That(t, errors.Is(err, lock.ErrBusy) && !errors.Is(err, lock.ErrLost), "want ErrBusy alone, have %v", err)
		wantAllFree(t, memory, "a")
	})
}

// A lock that is lost while the next one is awaited ends the wait.
func TestDoAllLosesOneWhileItWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		memory := locktest.NewMemory()
		_, err := lockerOn(t, memory).Acquire(t.Context(), "b", nil)
		expect.OK(t, err)
		time.AfterFunc(time.Second, func() { memory.Put("lock:a", "theirs", time.Hour) })
		err = lockerOn(t, memory).DoAll(t.Context(), []string{"a", "b"}, &lock.Options{Wait: lock.Forever}, func(context.Context) error {
			t.Error("want the work not to run")
			return nil
		})
		expect.That(t, errors.Is(err, lock.ErrLost) && !errors.Is(err, lock.ErrBusy) && !errors.Is(err, context.Canceled), "want ErrLost alone, have %v", err)
	})
}

// A panic releases all. A holder that asks again is told so, or gets its lock again if it means to.
func TestDoAllOfAHolder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		memory := locktest.NewMemory()
		locker := lockerOn(t, memory)
		nothing := func(context.Context) error { return nil }
		func() {
			defer func() { _ = recover() }()
			_ = locker.DoAll(t.Context(), []string{"a", "b"}, nil, func(ctx context.Context) error {
				for _, wait := range []time.Duration{0, time.Minute} {
					expect.Is(t, "do all", locker.DoAll(ctx, []string{"b", "c"}, &lock.Options{Wait: wait}, nothing), lock.ErrReentry)
					expect.OK(t, locker.DoAll(ctx, []string{"b", "c"}, &lock.Options{Wait: wait, Reentrant: true}, nothing))
				}
				panic("the work")
			})
		}()
		wantAllFree(t, memory, "a", "b", "c")
	})
}

func TestDoAllRefuses(t *testing.T) {
	t.Parallel()
	locker := lockerOn(t, locktest.NewMemory())
	var many []string
	for i := range 17 {
		many = append(many, fmt.Sprint(i))
	}
	var none context.Context
	nothing := func(context.Context) error { return nil }
	for want, call := range map[string]func() error{
		"lock: do all: resources: want 1 to 16, have 0":  func() error { return locker.DoAll(t.Context(), nil, nil, nothing) },
		"lock: do all: resources: want 1 to 16, have 17": func() error { return locker.DoAll(t.Context(), many, nil, nothing) },
		"lock: do all: fn: want a function, have nil":    func() error { return locker.DoAll(t.Context(), many[:1], nil, nil) },
		"lock: ctx: want a context, have nil":            func() error { return locker.DoAll(none, many[:1], nil, nothing) },
		"lock: wait: want 0 or more, have -1ns":          func() error { return locker.DoAll(t.Context(), many[:1], &lock.Options{Wait: -1}, nothing) },
		"lock: bad resource name: it is empty":           func() error { return locker.DoAll(t.Context(), []string{"a", ""}, nil, nothing) },
	} {
		expect.Equal(t, "error", fmt.Sprint(call()), want)
	}
	expect.OK(t, locker.DoAll(t.Context(), append(many[:16:16], many[0]), nil, nothing)) // 16 locks, one of them named twice
}

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
				expect.That(t, none <= tc.rare, "want one of each pair to get both locks, have none of %d pairs", none)
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
		outer := expect.Value(locker.Acquire(t.Context(), "outer", nil))(t)
		work := outer.Context(t.Context())
		wait := func(ctx context.Context) time.Duration {
			start := time.Now()
			wantBusy(t, "acquire", expect.Err(locker.Acquire(ctx, "order:1", &lock.Options{Wait: 4 * time.Second})))
			return time.Since(start)
		}
		expect.Equal(t, "a wait under no lock", wait(t.Context()), 4*time.Second)
		took := wait(work)
		expect.That(t, took >= 3*time.Second && took < 4*time.Second, "want a wait of 3s to 4s under a lock, have %v", took)
		expect.OK(t, outer.Release(t.Context()))
		expect.Equal(t, "a wait after the release", wait(context.WithoutCancel(work)), 4*time.Second)
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
	} {
		inBubbles(t, map[string]outage{
			name + ", refused": {fault: locktest.Refuse},
			name + ", hanging": {fault: locktest.BlackHole},
			name + ", slow":    {fault: locktest.Slow(500 * time.Millisecond), busy: true},
			name + ", well":    {fault: locktest.Fine, busy: true},
		}, func(t bubble, tc outage) {
			f := newFake()
			acquire(t, lockerOn(t, f.memory), nil)
			locker, start := lockerOn(t, f.Store), time.Now()
			var all sync.WaitGroup
			for range 3 { // of which two wait behind the first
				all.Go(func() {
					_, err := locker.Acquire(t.Context(), "order:1", &opts)
					expect.That(t, err != nil && errors.Is(err, lock.ErrBusy) == tc.busy, "want ErrBusy %t, have %v", tc.busy, err)
					took := time.Since(start)
					expect.That(t, took >= 5*time.Second && took <= 8400*time.Millisecond, "want the end of the wait, have %v", took)
				})
			}
			time.Sleep(4500 * time.Millisecond)
			f.Set(tc.fault)
			all.Wait()
			f.Set(locktest.Fine)
		})
	}
}

// A caller that goes away, or whose own time is over, waits for no answer of the store.
func TestWaitCancelledDuringAnOutage(t *testing.T) {
	t.Parallel()
	type row struct {
		opts             lock.Options
		cancel, deadline time.Duration // of the caller's context
		want             error
	}
	const end, late = 5 * time.Second, time.Minute
	inBubbles(t, map[string]row{
		"queued":                 {lock.Options{Wait: 20 * time.Second}, end, late, context.Canceled},
		"queued to a deadline":   {lock.Options{Wait: 20 * time.Second}, late, end, context.DeadlineExceeded},
		"for ever":               {lock.Options{Wait: lock.Forever}, end, late, context.Canceled},
		"for ever to a deadline": {lock.Options{Wait: lock.Forever}, late, end, context.DeadlineExceeded},
		"by a slow retry":        {lock.Options{Wait: 20 * time.Second, Retry: lock.Fixed(4 * time.Second)}, end, late, context.Canceled},
	}, func(t bubble, tc row) {
		f := newFake()
		acquire(t, lockerOn(t, f.memory), nil)
		ctx, cancel := context.WithTimeout(t.Context(), tc.deadline)
		defer cancel()
		time.AfterFunc(4500*time.Millisecond, func() { f.Set(locktest.BlackHole) })
		time.AfterFunc(tc.cancel, cancel)
		start := time.Now()
		_, err := lockerOn(t, f.Store).Acquire(ctx, "order:1", &tc.opts)
		expect.Is(t, "acquire", err, tc.want)
		expect.Equal(t, "time until the end", time.Since(start), end)
		f.Set(locktest.Fine)
	})
}
