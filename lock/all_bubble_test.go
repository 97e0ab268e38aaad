package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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
							if working[r] {
								t.Errorf("%s: want nobody else at work", r)
							}
							working[r] = true
							if lock.Fence(ctx, r) == 0 {
								t.Errorf("%s: want a fence", r)
							}
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
					if err != nil {
						t.Errorf("%v: %v", resources, err)
					}
				})
			}
		}
		all.Wait()
		wantAllFree(t, memory, names...)
	})
}

func wantAllFree(t *testing.T, memory *locktest.Memory, resources ...string) {
	t.Helper()
	for _, r := range resources {
		if have := memory.Value("lock:" + r); have != "" {
			t.Errorf("%s: want it free, have %s", r, have)
		}
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
	}, func(t *testing.T, tc row) {
		t.Helper()
		memory := locktest.NewMemory()
		held, err := lockerOn(t, memory).Acquire(t.Context(), "b", nil)
		must(t, err)
		locker := lockerOn(t, memory)
		start, resources := time.Now(), []string{"c", "a", "b", "a"}
		err = locker.DoAll(t.Context(), resources, &tc.opts, func(context.Context) error {
			t.Error("want the work not to run")
			return nil
		})
		if busy, ok := errors.AsType[*lock.BusyError](err); !ok || busy.Resource != "b" {
			t.Errorf("want b busy, have %v", err)
		}
		if took := time.Since(start); took != tc.took {
			t.Errorf("want an answer after %v, have %v", tc.took, took)
		}
		wantAllFree(t, memory, "a", "c")
		must(t, held.Release(t.Context()))
		ran := false
		err = locker.DoAll(t.Context(), resources, &tc.opts, func(context.Context) error { ran = true; return nil })
		if err != nil || !ran {
			t.Errorf("want the work done, have %v", err)
		}
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
		if !errors.Is(err, lock.ErrLost) || !errors.Is(err, broken) {
			t.Errorf("want ErrLost and the error of the work, have %v", err)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("want the loss seen by the next renewal, have %v", took)
		}
		wantAllFree(t, memory, "a", "c")
	})
}

// A lock that is lost while the next one is awaited ends the wait.
func TestDoAllLosesOneWhileItWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		memory := locktest.NewMemory()
		_, err := lockerOn(t, memory).Acquire(t.Context(), "b", nil)
		must(t, err)
		time.AfterFunc(time.Second, func() { memory.Put("lock:a", "theirs", time.Hour) })
		err = lockerOn(t, memory).DoAll(t.Context(), []string{"a", "b"}, &lock.Options{Wait: lock.Forever}, func(context.Context) error {
			t.Error("want the work not to run")
			return nil
		})
		if !errors.Is(err, lock.ErrLost) {
			t.Errorf("want ErrLost, have %v", err)
		}
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
					if err := locker.DoAll(ctx, []string{"b", "c"}, &lock.Options{Wait: wait}, nothing); !errors.Is(err, lock.ErrReentry) {
						t.Errorf("want ErrReentry, have %v", err)
					}
					if err := locker.DoAll(ctx, []string{"b", "c"}, &lock.Options{Wait: wait, Reentrant: true}, nothing); err != nil {
						t.Error(err)
					}
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
		if err := call(); err == nil || err.Error() != want {
			t.Errorf("want %q, have %v", want, err)
		}
	}
	if err := locker.DoAll(t.Context(), append(many[:16:16], many[0]), nil, nothing); err != nil {
		t.Errorf("want 16 locks, one of them named twice: %v", err)
	}
}
