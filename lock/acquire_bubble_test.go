package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidingq/siding/lock"
)

// acquireFrom is one attempt on a fake with the default configuration.
func acquireFrom(t *testing.T, ctx context.Context, f *fakeRedis) (*lock.Lease, error) { //nolint:revive // t first, as in every helper
	t.Helper()
	locker, err := lock.New(f, lock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return locker.Acquire(ctx, "order:1", nil)
}

// TestUnknownOutcomeIsCleanedUp: Redis took the lock, its answer is lost or
// useless, so that nobody would ever release it.
func TestUnknownOutcomeIsCleanedUp(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		network fault
		want    error // nil for any
	}{
		{"answer lost", swallow, errNetwork},
		{"answer after the deadline", slow(14 * time.Second), nil},
		{"answer of another kind", func(_ context.Context, _ string, act func() any) (any, error) { act(); return "OK", nil }, nil},
		{"answer that is too short", func(_ context.Context, _ string, act func() any) (any, error) { act(); return []any{int64(1)}, nil }, nil},
		{"refusal that is too short", func(_ context.Context, _ string, act func() any) (any, error) { act(); return []any{int64(0)}, nil }, nil},
		{"fence that is no number", func(_ context.Context, _ string, act func() any) (any, error) {
			act()
			return []any{int64(1), "1.79e+15", "-1"}, nil
		}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := &fakeRedis{network: once("acquire", 1, tc.network)}
				lease, err := acquireFrom(t, t.Context(), f)
				if err == nil || errors.Is(err, lock.ErrBusy) || errors.Is(err, lock.ErrLost) {
					t.Errorf("want an error that is neither busy nor lost, have lease %v and %v", lease, err)
				}
				if tc.want != nil && !errors.Is(err, tc.want) {
					t.Errorf("want %v, have %v", tc.want, err)
				}
				if have := f.get(); have != "" {
					t.Errorf("want nothing left behind, have %q", have)
				}
				if have := f.last(t); have.script != "release" || have.dead || have.bound <= 0 || have.bound > 5*time.Second {
					t.Errorf("want a live and bounded release as the last call, have %+v", have)
				}
			})
		})
	}
}

// TestAcquireWithoutRedis ends in time, also when the clean-up gets no answer.
func TestAcquireWithoutRedis(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if _, err := acquireFrom(t, ctx, &fakeRedis{network: hanging}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("want the deadline exceeded, have %v", err)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("want at most the deadline and the clean-up, have %v", took)
		}
	})
}

func TestAcquireIsBoundedByItsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if _, err := acquireFrom(t, t.Context(), &fakeRedis{network: once("acquire", 1, hanging)}); err == nil {
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
		f := &fakeRedis{network: once("acquire", 1, slow(3*time.Second))}
		lease, err := acquireFrom(t, t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(11*time.Second - 1)
		if !lease.Valid() {
			t.Error("want a valid lease before its deadline")
		}
		time.Sleep(time.Nanosecond)
		if lease.Valid() {
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
			f := &fakeRedis{}
			if _, err := acquireFrom(t, ctx, f); !errors.Is(err, stopped) || !errors.Is(err, context.Canceled) {
				t.Errorf("want the context's error and its cause, have %v", err)
			}
			if have := len(f.calls); have != 0 {
				t.Errorf("want nothing sent, have %d calls", have)
			}
		})
	})
	t.Run("meanwhile", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			f := &fakeRedis{network: once("acquire", 1, func(_ context.Context, _ string, act func() any) (any, error) {
				v := act()
				cancel(stopped)
				return v, nil
			})}
			if _, err := acquireFrom(t, ctx, f); !errors.Is(err, stopped) || !errors.Is(err, context.Canceled) {
				t.Errorf("want the context's error and its cause, have %v", err)
			}
			if have := f.get(); have != "" {
				t.Errorf("want what was taken given back, have %q", have)
			}
		})
	})
	t.Run("while Redis hangs", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, stopped)
			defer cancel()
			f := &fakeRedis{network: once("acquire", 1, deaf(2*time.Second))}
			_, err := acquireFrom(t, ctx, f)
			if !errors.Is(err, stopped) || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errNetwork) {
				t.Errorf("want the context's error, its cause and the network's error, have %v", err)
			}
		})
	})
}
