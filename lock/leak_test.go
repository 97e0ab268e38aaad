package lock_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
)

// brief is the configuration of leases that end within a second if they are not renewed.
var brief = lock.Config{TTL: 600 * time.Millisecond, RenewEvery: 50 * time.Millisecond}

// slow is that of leases that a busy machine does not lose.
var slow = lock.Config{TTL: 5 * time.Second, RenewEvery: 50 * time.Millisecond}

// forgotten takes the lock, and returns what it makes of the lease alone.
func forgotten[T any](t *testing.T, locker *lock.Locker, of func(*lock.Lease) T) T {
	t.Helper()
	held, err := locker.Acquire(t.Context(), "order:1", nil)
	if err != nil {
		t.Fatal(err)
	}
	return of(held)
}

// gone reports whether the lock is free, after a garbage collection.
func gone(memory *locktest.Memory) func() bool {
	return func() bool {
		runtime.GC()
		return memory.Value("lock:order:1") == ""
	}
}

// A lease that the program has dropped without a release is not renewed for ever.
func TestDroppedLeaseIsNotRenewed(t *testing.T) {
	t.Parallel()
	memory := locktest.NewMemory()
	locker, err := lock.New(memory, brief)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(locker.Close)
	_ = forgotten(t, locker, func(*lock.Lease) int { return 0 })
	poll.Eventually(t, "the lock of the dropped lease to expire", gone(memory))
	poll.Eventually(t, "nothing to be kept of it", func() bool { return locker.Contenders() == 0 })
}

// Work under a context of the lease, or one that comes from it, is protected although the lease
// itself was dropped. That ends with the context.
func TestDroppedLeaseIsRenewedForItsContexts(t *testing.T) {
	t.Parallel()
	for name, derive := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"its context":           func(ctx context.Context) (context.Context, context.CancelFunc) { return ctx, func() {} },
		"one that has a cancel": context.WithCancel,
		"one that never ends": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithoutCancel(ctx), func() {}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			memory := locktest.NewMemory()
			locker, err := lock.New(memory, slow)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(locker.Close)
			func() {
				ctx := forgotten(t, locker, func(held *lock.Lease) context.Context { return held.Context(t.Context()) })
				work, cancel := derive(ctx)
				defer cancel()
				for end := time.Now().Add(slow.TTL + time.Second); time.Now().Before(end); _ = sleep.For(t.Context(), slow.RenewEvery) {
					if gone(memory)() || ctx.Err() != nil {
						t.Fatalf("want the lock held while somebody works, have %v", context.Cause(ctx))
					}
				}
				runtime.KeepAlive(work)
			}()
			poll.Eventually(t, "the lock to expire once nobody works", gone(memory))
		})
	}
}

// A holder takes a lease on top of its first one, and drops it. That does not end the renewal of
// the first.
func TestDroppedLeaseOfALiveHolder(t *testing.T) {
	t.Parallel()
	memory := locktest.NewMemory()
	locker, err := lock.New(memory, slow)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(locker.Close)
	held, err := locker.Acquire(t.Context(), "order:1", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := locker.Acquire(held.Context(t.Context()), "order:1", &lock.Options{Reentrant: true}); err != nil {
		t.Fatal(err)
	}
	for range 5 { // by then the second lease is found
		runtime.GC()
		_ = sleep.For(t.Context(), 2*slow.RenewEvery)
	}
	before := held.Deadline()
	poll.Eventually(t, "a renewal of the first lease", func() bool { return held.Deadline().After(before) })
	if err := held.Release(t.Context()); err != nil {
		t.Error(err)
	}
	poll.Eventually(t, "the lock of the dropped lease to expire", gone(memory))
}

// A lock goes from one process to another by its token, and is never free in between.
func TestResume(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		held, err := s.Acquire(s.Context(), s.res, &lock.Options{Holder: "one"})
		if err != nil {
			s.Fatal(err)
		}
		before, token := s.value(), held.Token()
		held.Detach()
		other := s.stranger()
		again, err := other.Resume(s.Context(), s.res, token)
		if err != nil {
			s.Fatal(err)
		}
		if s.value() != before || again.Fence() != held.Fence() || again.Deadline().IsZero() || again.Token() != token {
			s.Errorf("want the same lease, have %q, fence %d", s.value(), again.Fence())
		}
		if have := lock.Fence(again.Context(s.Context()), s.res); have != held.Fence() {
			s.Errorf("want its context to carry %d, have %d", held.Fence(), have)
		}
		if busy := s.refuse(""); busy.Holder != "one" {
			s.Errorf("want it held by its holder, have %+v", busy)
		}
		s.release(again)
		if _, err := other.Resume(s.Context(), s.res, token); !errors.Is(err, lock.ErrLost) {
			s.Errorf("after the release: want ErrLost, have %v", err)
		}
		if have := s.value(); have != "" {
			s.Errorf("want the lock free, have %q", have)
		}
		for _, bad := range []string{"", "7", "7:other", "x:siding:1:one", "7/1/x:siding:1:one", "7/1/1 1/1:siding:1:one"} {
			if _, err := other.Resume(s.Context(), s.res, bad); err == nil || errors.Is(err, lock.ErrLost) {
				s.Errorf("token %q: want an error that says what is wrong, have %v", bad, err)
			}
		}
		if _, err := other.Resume(s.Context(), "{", token); !errors.Is(err, lock.ErrResource) {
			s.Errorf("want ErrResource, have %v", err)
		}
		other.Close()
		if _, err := other.Resume(s.Context(), s.res, token); !errors.Is(err, lock.ErrClosed) {
			s.Errorf("want ErrClosed, have %v", err)
		}
	})
}

// A lease of its own TTL is trusted and renewed in proportion.
func TestTTLOfOneLock(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		held, err := s.Acquire(s.Context(), s.res, &lock.Options{TTL: 6 * time.Second})
		if err != nil {
			s.Fatal(err)
		}
		s.wantTTL(s.key, 2*time.Second, 6*time.Second)
		first := held.Deadline()
		if left := time.Until(first); left > 5600*time.Millisecond {
			s.Errorf("want it trusted for 5.6 s, have %v", left)
		}
		poll.Eventually(s.T, "a renewal", func() bool { return held.Deadline().After(first) })
		s.release(held)
	})
}
