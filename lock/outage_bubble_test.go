package lock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
)

// Those who wait behind another goroutine, and give up, are told what the store has told that one: that the lock is busy, what is
// wrong with the store, or nothing yet.
func TestGiveUpBehindAnother(t *testing.T) {
	t.Parallel()
	type row struct {
		fault locktest.Fault
		want  error // nil for nothing yet
	}
	inBubbles(t, map[string]row{
		"busy":    {locktest.Fine, lock.ErrBusy},
		"refused": {locktest.Refuse, locktest.ErrNetwork},
		"hanging": {locktest.BlackHole, nil},
	}, func(t bubble, tc row) {
		f := newFake()
		acquire(t, lockerOn(t, f.memory), nil)
		f.Set(tc.fault)
		locker := lockerOn(t, f.Store)
		first, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			expect.Is(t, "the first", expect.Err(locker.Acquire(first, "order:1", &lock.Options{Wait: lock.Forever})), context.Canceled)
		})
		synctest.Wait()
		for _, wait := range []time.Duration{lock.Forever, time.Minute} {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			_, err := locker.Acquire(ctx, "order:1", &lock.Options{Wait: wait})
			cancel()
			busy, isBusy := errors.AsType[*lock.BusyError](err)
			expect.That(t, errors.Is(err, context.DeadlineExceeded) && (tc.want == nil || errors.Is(err, tc.want)), "want the end and %v, have %v", tc.want, err)
			expect.That(t, isBusy == errors.Is(tc.want, lock.ErrBusy) && (!isBusy || busy.Position == 0), "want it busy only if the store says so, and no place in its wait queue, have %#v", err)
		}
		f.Set(locktest.Fine)
		leave()
		all.Wait()
	})
}

// Those who wait behind others go through an outage for a TTL as the first one does, and not for a TTL after it. They come one
// after the other only to try once more if they came later.
func TestOutageEndsAllWaits(t *testing.T) {
	t.Parallel()
	type row struct {
		fault         locktest.Fault
		longest, late time.Duration
	}
	inBubbles(t, map[string]row{
		"refused": {locktest.Refuse, 16 * time.Second, 16 * time.Second},
		"hanging": {locktest.BlackHole, 17 * time.Second, 32 * time.Second}, // a call and its release take 17 s
	}, func(t bubble, tc row) {
		locker := lockerOn(t, newFake().with(tc.fault).Store)
		var all sync.WaitGroup
		wait := func(n int, longest time.Duration) {
			for range n {
				all.Go(func() {
					start := time.Now()
					wantBroken(t, "acquire", expect.Err(locker.Acquire(t.Context(), "order:1", &lock.Options{Wait: lock.Forever})))
					took := time.Since(start)
					expect.That(t, took >= 15*time.Second && took <= longest, "want an error after the TTL of 15s, at the latest after %v, have it after %v", longest, took)
				})
			}
			synctest.Wait()
		}
		wait(100, tc.longest)
		time.Sleep(5 * time.Second)
		wait(10, tc.late)
		all.Wait()
	})
}
