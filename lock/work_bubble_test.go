package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
)

// errStop is why the callers of these tests end their work.
var errStop = errors.New("shutting down")

// again takes the lock of the holder again.
func (l *leased) again(tb testing.TB, work context.Context) *lock.Lease { //nolint:revive // tb first, as in every helper
	tb.Helper()
	held := expect.Value(l.locker.Acquire(work, "order:1", &lock.Options{Reentrant: true}))(tb)
	return held
}

// wantRenewed checks that the lease is renewed for a minute more.
func (l *leased) wantRenewed(tb testing.TB) {
	tb.Helper()
	time.Sleep(time.Minute)
	synctest.Wait() // a renewal is due just now
	expect.Need(tb, !l.Deadline().IsZero() && l.redis.get() != "", "want the lease renewed, have it ended after %v", time.Since(l.start))
}

// wantExpired checks that the lease is not renewed, and that the lock is free after the TTL.
func (l *leased) wantExpired(tb testing.TB) {
	tb.Helper()
	renewals := len(l.redis.SentAt(locktest.Renew, l.start))
	time.Sleep(15 * time.Second)
	expect.That(tb, l.Deadline().IsZero() && l.redis.get() == "", "want the lease ended, have it until %v", l.Deadline())
	expect.Equal(tb, "renewals, as none is sent", len(l.redis.SentAt(locktest.Renew, l.start)), renewals)
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
		have := context.Cause(work)
		expect.That(t, errors.Is(have, errStop), "want the caller's cause, have %v", have)
		expect.That(t, !l.Deadline().IsZero(), "want the lease valid until its deadline")
		held := expect.Value(lockerOn(t, l.redis.Store).Acquire(t.Context(), "order:1", &lock.Options{Wait: time.Minute}))(t)
		after := time.Since(l.start)
		expect.That(t, after >= 20*time.Second && after <= 21*time.Second, "want the lock after 20s, have it after %v", after)
		wantLost(t, "release", l.Release(t.Context()))
		expect.OK(t, held.Release(t.Context())) // the other's lock is untouched
	})
}

// A lease is renewed while anybody may be at work under it, and only then.
func TestRenewedWhileSomebodyWorks(t *testing.T) {
	t.Parallel()
	type row struct{ twoLeases, secondFirst bool }
	inBubbles(t, map[string]row{
		"two contexts": {false, false}, "two contexts, the second ends first": {false, true},
		"two leases": {true, false}, "two leases, the second ends first": {true, true},
	}, func(t bubble, tc row) {
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
		expect.OK(t, err)
		stop()
		l.wantRenewed(t)
		l.release(t)
	})
}

// New work under a lease whose contexts have all ended is renewed from then on.
func TestNewWorkIsRenewed(t *testing.T) {
	t.Parallel()
	inBubbles(t, map[string]bool{"a context": false, "a lease": true}, func(t bubble, again bool) {
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

// Do protects its function until the function returns, also after the end of its context.
func TestDoProtectsWorkThatIgnoresItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLeased(t)
		l.release(t)
		ctx, stop := context.WithCancelCause(t.Context())
		err := l.locker.Do(ctx, "order:1", nil, func(work context.Context) error {
			stop(errStop)
			have := context.Cause(work)
			expect.That(t, errors.Is(have, errStop), "want the caller's cause, have %v", have)
			time.Sleep(time.Minute)
			wantBusy(t, "acquire", expect.Err(l.locker.Acquire(context.WithoutCancel(ctx), "order:1", nil)))
			return nil
		})
		expect.That(t, err == nil, "want no loss, have %v", err)
		l.redis.wantFree(t)
	})
}

// unrenewed is a lease of order:1 that is trusted for 14 s, and not renewed.
func unrenewed(tb testing.TB) *leased {
	tb.Helper()
	return newLeasedAs(tb, &lock.Options{NoRenew: true})
}

// A lease that is not renewed ends before anybody else can have the lock, whatever contexts it has.
func TestNoRenewEndsInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := unrenewed(t)
		work := l.Context(t.Context())
		time.Sleep(6 * time.Second)
		ctx, end := context.WithCancel(t.Context())
		l.Context(ctx)
		end()
		more := l.Context(t.Context()) // nor does new work renew it
		l.wantAlive(t, work)
		l.wantEnd(t, work, 14*time.Second)
		l.wantEnd(t, more, 14*time.Second)
		expect.That(t, l.redis.get() != "", "want the contexts ended before the lock is free")
		time.Sleep(time.Minute)
		expect.Equal(t, "calls, as the acquire alone was sent", len(l.redis.Sent()), 1)
	})
}

// A release after the end is no error, whoever has the lock by then and whether or not the store answers. A release
// that finds the lock lost before the end is.
func TestReleaseOfNoRenew(t *testing.T) {
	t.Parallel()
	type row struct {
		after   time.Duration
		then    func(*leased)
		lost    bool
		refused bool
	}
	inBubbles(t, map[string]row{
		"in time":                          {after: 13 * time.Second},
		"after the deadline":               {after: 14 * time.Second},
		"after the TTL":                    {after: 16 * time.Second},
		"another has it by then":           {after: 16 * time.Second, then: func(l *leased) { l.redis.put("theirs") }},
		"the store refuses after the end":  {after: 16 * time.Second, then: func(l *leased) { l.redis.Set(locktest.Refuse) }},
		"the store hangs past the end":     {after: 13 * time.Second, then: func(l *leased) { l.redis.Set(locktest.BlackHole) }},
		"the store refuses before the end": {after: time.Second, then: func(l *leased) { l.redis.Set(locktest.Refuse) }, refused: true},
		"deleted before the end":           {after: time.Second, then: func(l *leased) { l.redis.put("theirs") }, lost: true},
		"found lost before the end": {after: time.Second, lost: true, then: func(l *leased) {
			l.redis.put("theirs")
			_ = l.Renew(context.Background())
			time.Sleep(time.Minute)
		}},
	}, func(t bubble, tc row) {
		l := unrenewed(t)
		time.Sleep(tc.after)
		if tc.then != nil {
			tc.then(l)
		}
		err := l.Release(t.Context())
		expect.That(t, errors.Is(err, lock.ErrLost) == tc.lost && (err != nil) == (tc.lost || tc.refused), "have %v", err)
	})
}

// Renew prolongs such a lease once, by its TTL.
func TestRenewOfNoRenew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := unrenewed(t)
		work := l.Context(t.Context())
		time.Sleep(10 * time.Second)
		expect.OK(t, l.Renew(t.Context()))
		l.wantEnd(t, work, 24*time.Second)
	})
}

// Do tells of work that took longer than its lock.
func TestDoWithNoRenew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for took, lost := range map[time.Duration]bool{13 * time.Second: false, 20 * time.Second: true} {
			err := lockerOn(t, newFake().Store).Do(t.Context(), "order:1", &lock.Options{NoRenew: true}, func(context.Context) error {
				time.Sleep(took)
				return nil
			})
			expect.That(t, errors.Is(err, lock.ErrLost) == lost && (lost || err == nil), "%v: want ErrLost %t, have %v", took, lost, err)
		}
	})
}
