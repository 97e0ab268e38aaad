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

// errStop is why the callers of these tests end their work.
var errStop = errors.New("shutting down")

// again takes the lock of the holder again.
func (l *leased) again(t *testing.T, work context.Context) *lock.Lease { //nolint:revive // t first, as in every helper
	t.Helper()
	held, err := l.locker.Acquire(work, "order:1", &lock.Options{Reentrant: true})
	must(t, err)
	return held
}

// wantRenewed checks that the lease is renewed for a minute more.
func (l *leased) wantRenewed(t *testing.T) {
	t.Helper()
	time.Sleep(time.Minute)
	synctest.Wait() // a renewal is due just now
	if l.Deadline().IsZero() || l.redis.get() == "" {
		t.Fatalf("want the lease renewed, have it ended after %v", time.Since(l.start))
	}
}

// wantExpired checks that the lease is not renewed, and that the lock is free after the TTL.
func (l *leased) wantExpired(t *testing.T) {
	t.Helper()
	renewals := len(l.redis.SentAt(locktest.Renew, l.start))
	time.Sleep(15 * time.Second)
	if !l.Deadline().IsZero() || l.redis.get() != "" {
		t.Errorf("want the lease ended, have it until %v", l.Deadline())
	}
	if have := len(l.redis.SentAt(locktest.Renew, l.start)); have != renewals {
		t.Errorf("want no renewal, have %d", have-renewals)
	}
}

// A lease whose only context has ended is not renewed. Another process has the lock after a TTL.
func TestEndOfAllContextsEndsTheRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLeased(t)
		ctx, stop := context.WithCancelCause(t.Context())
		work := l.Context(ctx)
		time.Sleep(6 * time.Second) // renewed after 5 s: the lease ends after 19 s, and the lock after 20 s
		stop(errStop)
		if have := context.Cause(work); !errors.Is(have, errStop) {
			t.Errorf("want the caller's cause, have %v", have)
		}
		if l.Deadline().IsZero() {
			t.Error("want the lease valid until its deadline")
		}
		held, err := lockerOn(t, l.redis.Store).Acquire(t.Context(), "order:1", &lock.Options{Wait: time.Minute})
		must(t, err)
		if after := time.Since(l.start); after < 20*time.Second || after > 21*time.Second {
			t.Errorf("want the lock after 20s, have it after %v", after)
		}
		wantLost(t, "release", l.Release(t.Context()))
		must(t, held.Release(t.Context())) // the other's lock is untouched
	})
}

// A lease is renewed while anybody may be at work under it, and only then.
func TestRenewedWhileSomebodyWorks(t *testing.T) {
	t.Parallel()
	type row struct{ twoLeases, secondFirst bool }
	inBubbles(t, map[string]row{
		"two contexts": {false, false}, "two contexts, the second ends first": {false, true},
		"two leases": {true, false}, "two leases, the second ends first": {true, true},
	}, func(t *testing.T, tc row) {
		t.Helper()
		l := newLeased(t)
		first, stopFirst := context.WithCancel(t.Context())
		second, stopSecond := context.WithCancel(t.Context())
		if work := l.Context(first); tc.twoLeases {
			l.again(t, work).Context(second)
		} else {
			l.Context(second)
		}
		if tc.secondFirst {
			stopFirst, stopSecond = stopSecond, stopFirst
		}
		l.wantRenewed(t)
		stopFirst()
		l.wantRenewed(t)
		stopSecond()
		l.wantExpired(t)
	})
}

// A lease that has no context is renewed until the release. The context of the Acquire, which has
// ended, does not count.
func TestRenewedWithoutContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLeased(t)
		l.release(t)
		ctx, stop := context.WithCancel(t.Context())
		var err error
		l.Lease, err = l.locker.Acquire(ctx, "order:1", nil)
		must(t, err)
		stop()
		l.wantRenewed(t)
		l.release(t)
	})
}

// New work under a lease whose contexts have all ended is renewed from then on.
func TestNewWorkIsRenewed(t *testing.T) {
	t.Parallel()
	inBubbles(t, map[string]bool{"a context": false, "a lease": true}, func(t *testing.T, again bool) {
		t.Helper()
		l := newLeased(t)
		ctx, stop := context.WithCancel(t.Context())
		work := l.Context(ctx)
		time.Sleep(6 * time.Second)
		stop()
		l.Context(ctx) // ended, so it changes nothing
		time.Sleep(13*time.Second - time.Nanosecond)
		if again { // at the last moment
			second := l.again(t, context.WithoutCancel(work))
			l.release(t)
			l.Lease = second
		} else {
			l.Context(t.Context())
		}
		l.wantRenewed(t)
		l.release(t)
	})
}

// Work that begins after the deadline of such a lease ends at once, and nothing is renewed.
func TestNewWorkComesTooLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLeased(t)
		ctx, stop := context.WithCancel(t.Context())
		l.Context(ctx)
		stop()
		time.Sleep(14 * time.Second)
		l.wantEnd(t, l.Context(t.Context()), 14*time.Second)
		l.wantExpired(t)
	})
}

// Do protects its function until the function returns, also after the end of its context.
func TestDoProtectsWorkThatIgnoresItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLeased(t)
		l.release(t)
		ctx, stop := context.WithCancelCause(t.Context())
		err := l.locker.Do(ctx, "order:1", nil, func(work context.Context) error {
			stop(errStop)
			if have := context.Cause(work); !errors.Is(have, errStop) {
				t.Errorf("want the caller's cause, have %v", have)
			}
			time.Sleep(time.Minute)
			_, err := l.locker.Acquire(context.WithoutCancel(ctx), "order:1", nil)
			wantBusy(t, "acquire", err)
			return nil
		})
		if err != nil {
			t.Errorf("want no loss, have %v", err)
		}
		l.redis.wantFree(t)
	})
}
