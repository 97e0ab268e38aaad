package lock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
)

// TestUnknownOutcomeIsCleanedUp: nobody would ever release what Redis has taken without an answer that is of use. An acquire
// is given up when its lease would have ended.
func TestUnknownOutcomeIsCleanedUp(t *testing.T) {
	t.Parallel()
	type row struct {
		network locktest.Fault
		want    error
		took    time.Duration
	}
	inBubbles(t, map[string]row{
		"answer lost":               {locktest.SwallowReply, locktest.ErrNetwork, 0},
		"answer after the deadline": {locktest.Slow(14 * time.Second), nil, 14 * time.Second},
		"no answer":                 {locktest.BlackHole, context.DeadlineExceeded, 14 * time.Second},
	}, func(t *testing.T, tc row) {
		t.Helper()
		f, start := newFake().with(locktest.Once(locktest.Acquire, 1, tc.network)), time.Now()
		_, err := lockerOn(t, f.Store).Acquire(t.Context(), "order:1", nil)
		wantBroken(t, "acquire", err)
		if tc.want != nil && !errors.Is(err, tc.want) || time.Since(start) != tc.took {
			t.Errorf("want %v after %v, have %v after %v", tc.want, tc.took, err, time.Since(start))
		}
		f.wantFree(t)
		if have := f.last(t); have.Step != locktest.Release || have.Dead || have.Bound <= 0 || have.Bound > 5*time.Second {
			t.Errorf("want a live and bounded release as the last call, have %+v", have)
		}
	})
}

// An endingContext ends as soon as somebody has asked whether it has.
type endingContext struct {
	context.Context //nolint:containedctx // it is one

	end func()
}

func (c endingContext) Err() error {
	defer c.end()
	return c.Context.Err()
}

// TestAcquireOnAnEndedContext: the error matches the context's and its cause, whenever it ends, and nothing is sent for one
// that has ended before.
func TestAcquireOnAnEndedContext(t *testing.T) {
	t.Parallel()
	stopped := errors.New("shutting down")
	inBubbles(t, map[string]bool{"before": true, "as it is asked": false}, func(t *testing.T, before bool) {
		t.Helper()
		ctx, cancel := context.WithCancelCause(t.Context())
		asked := endingContext{ctx, func() { cancel(stopped) }}
		if before {
			cancel(stopped)
		}
		f := newFake()
		if _, err := lockerOn(t, f.Store).Acquire(asked, "order:1", nil); !errors.Is(err, stopped) || !errors.Is(err, context.Canceled) {
			t.Errorf("want the context's error and its cause, have %v", err)
		}
		if have := len(f.Sent()); before && have != 0 {
			t.Errorf("want nothing sent, have %d calls", have)
		}
	})
}

// TestLeaseThatEndsAtOnce: a lease may be over as soon as it has begun. The timer that ends the
// lease must not race with the goroutine that sets the timer.
func TestLeaseThatEndsAtOnce(t *testing.T) { // on the real clock
	t.Parallel()
	locker := lockerOn(t, newFake().Store)
	for i := range 2000 {
		longest := time.Duration(i) * 10 * time.Nanosecond
		held, err := locker.Acquire(t.Context(), "order:1", &lock.Options{MaxHold: max(1, longest)})
		if err != nil {
			continue // it was over even sooner
		}
		wantHeldTooLong(t, ended(t, held.Context(t.Context())))
		wantHeldTooLong(t, held.Release(t.Context()))
	}
}
