package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
)

// acquireFrom is one attempt on a fake with the default configuration.
func acquireFrom(t *testing.T, ctx context.Context, f *fake) (*lock.Lease, error) { //nolint:revive // t first, as in every helper
	t.Helper()
	locker, err := lock.New(f.Store, lock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(locker.Close)
	return locker.Acquire(ctx, "order:1", nil)
}

// TestUnknownOutcomeIsCleanedUp: Redis took the lock, its answer is lost or
// useless, so that nobody would ever release it.
func TestUnknownOutcomeIsCleanedUp(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		network locktest.Fault
		want    error // nil for any
	}{
		{"answer lost", locktest.SwallowReply, locktest.ErrNetwork},
		{"answer after the deadline", locktest.Slow(14 * time.Second), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFake().with(locktest.Once(locktest.Acquire, 1, tc.network))
				held, err := acquireFrom(t, t.Context(), f)
				if err == nil || errors.Is(err, lock.ErrBusy) || errors.Is(err, lock.ErrLost) {
					t.Errorf("want an error that is neither busy nor lost, have lease %v and %v", held, err)
				}
				if tc.want != nil && !errors.Is(err, tc.want) {
					t.Errorf("want %v, have %v", tc.want, err)
				}
				if have := f.get(); have != "" {
					t.Errorf("want nothing left behind, have %q", have)
				}
				if have := f.last(t); have.Step != locktest.Release || have.Dead || have.Bound <= 0 || have.Bound > 5*time.Second {
					t.Errorf("want a live and bounded release as the last call, have %+v", have)
				}
			})
		})
	}
}

// TestAcquireWithoutStore returns when its context ends, whatever still has to be
// cleaned up.
func TestAcquireWithoutStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if _, err := acquireFrom(t, ctx, newFake().with(locktest.BlackHole)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("want the deadline exceeded, have %v", err)
		}
		if took := time.Since(start); took != time.Second {
			t.Errorf("want it given up at its deadline, after 1s, have %v", took)
		}
	})
}

func TestAcquireIsBoundedByItsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if _, err := acquireFrom(t, t.Context(), newFake().with(locktest.Once(locktest.Acquire, 1, locktest.BlackHole))); err == nil {
			t.Error("want an error")
		}
		if took := time.Since(start); took != 14*time.Second {
			t.Errorf("want it given up when the lease would have ended after 14s, have %v", took)
		}
	})
}

// TestAcquireTrustsFromItsStart: an answer after 3 s leaves 11 s of 14.
func TestAcquireTrustsFromItsStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake().with(locktest.Once(locktest.Acquire, 1, locktest.Slow(3*time.Second)))
		held, err := acquireFrom(t, t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		abandon(held)
		time.Sleep(11*time.Second - 1)
		if held.Deadline().IsZero() {
			t.Error("want a valid lease before its deadline")
		}
		time.Sleep(time.Nanosecond)
		if !held.Deadline().IsZero() {
			t.Error("want no valid lease at its deadline")
		}
	})
}

// TestAcquireOnAnEndedContext checks the caller's context before and after.
func TestAcquireOnAnEndedContext(t *testing.T) {
	t.Parallel()
	stopped := errors.New("shutting down")
	t.Run("before", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(stopped)
			f := newFake()
			if _, err := acquireFrom(t, ctx, f); !errors.Is(err, stopped) || !errors.Is(err, context.Canceled) {
				t.Errorf("want the context's error and its cause, have %v", err)
			}
			if have := len(f.Sent()); have != 0 {
				t.Errorf("want nothing sent, have %d calls", have)
			}
		})
	})
	t.Run("meanwhile", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			f := newFake().with(locktest.Once(locktest.Acquire, 1, func(_ context.Context, _ string, act func() error) error {
				defer cancel(stopped)
				return act()
			}))
			if _, err := acquireFrom(t, ctx, f); !errors.Is(err, stopped) || !errors.Is(err, context.Canceled) {
				t.Errorf("want the context's error and its cause, have %v", err)
			}
			synctest.Wait()
			if have := f.get(); have != "" {
				t.Errorf("want what was taken given back, have %q", have)
			}
			if have := f.last(t); have.Step != locktest.Release || have.Dead {
				t.Errorf("want a live release as the last call, have %+v", have)
			}
		})
	})
}
