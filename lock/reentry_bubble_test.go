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

// ways are all ways to ask for a lock.
var ways = map[string]lock.Options{"once": {}, "queued": waits["queued"], "by retry": waits["by retry"]}

// A holder gets its lock again under the same token and fence, without a call to the store. The last of its leases frees the lock,
// whichever that is, and each counts once.
func TestReentryCountsOnce(t *testing.T) {
	t.Parallel()
	inBubbles(t, ways, func(t bubble, how lock.Options) {
		l := newLeased(t)
		work, token := l.Context(t.Context()), l.redis.get()
		how.Reentrant = true
		again := func() *lock.Lease {
			inner := expect.Value(l.locker.Acquire(work, "order:1", &how))(t)
			expect.Equal(t, "fence", inner.Fence(), l.Fence())
			expect.Equal(t, "fence in a context", lock.Fence(inner.Context(work), "order:1"), l.Fence())
			return inner
		}
		inner := again()
		for range 2 {
			expect.OK(t, inner.Release(t.Context()))
		}
		l.wantAlive(t, work)
		inner = again()
		l.release(t)
		expect.That(t, !inner.Deadline().IsZero() && l.redis.get() == token, "want the lock held until the inner lease is released")
		expect.Equal(t, "calls, as the first acquire alone was sent", len(l.redis.Sent()), 1)
		expect.OK(t, inner.Release(t.Context()))
		l.redis.wantFree(t)
	})
}

// Nobody who has lost the lock gets a new one by the context of the old.
func TestReentryAfterALoss(t *testing.T) {
	t.Parallel()
	inBubbles(t, map[string]bool{"reentrant": true, "unasked": false}, func(t bubble, reentrant bool) {
		l := newLeased(t)
		work := l.Context(t.Context())
		l.redis.Set(locktest.BlackHole)
		<-work.Done()
		l.redis.Set(locktest.Fine)
		for what, ctx := range map[string]context.Context{"its context": work, "one that outlives it": context.WithoutCancel(work)} {
			wantLost(t, "acquire with "+what, expect.Err(l.locker.Acquire(ctx, "order:1", &lock.Options{Reentrant: reentrant})))
		}
		wantLost(t, "release", l.Release(t.Context()))
	})
}

// The first lease's limits hold for all that follow, and the release of one that follows ends no renewal.
func TestReentryKeepsTheLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLeased(t)
		work := l.Context(t.Context())
		short := expect.Value(l.locker.Acquire(work, "order:1", &lock.Options{MaxHold: time.Millisecond, Reentrant: true}))(t)
		l.wantRenewed(t)
		expect.That(t, !short.Deadline().IsZero(), "want the inner lease alive")
		expect.OK(t, short.Release(t.Context()))
		l.wantRenewed(t)
		l.wantAlive(t, work)
		l.release(t)
	})
}

// The context is the holder, in whatever goroutine: of its own resource, and until it has released that. Unasked, the holder does not
// get its lock again, and does not wait for itself.
func TestHolderIsAContext(t *testing.T) {
	t.Parallel()
	inBubbles(t, ways, func(t bubble, how lock.Options) {
		l := newLeased(t)
		work := l.Context(t.Context())
		err := expect.Err(l.locker.Acquire(work, "order:1", &how))
		expect.That(t, errors.Is(err, lock.ErrReentry) && !errors.Is(err, lock.ErrBusy) && !errors.Is(err, lock.ErrLost),
			"want ErrReentry, and neither busy nor lost, have %v", err)
		expect.Equal(t, "calls, as the first acquire alone was sent", len(l.redis.Sent()), 1)
		l.wantAlive(t, work)
		wantBusy(t, "without its context", expect.Err(l.locker.Acquire(t.Context(), "order:1", nil)))
		other := expect.Value(lockerOn(t, l.redis.Store).Acquire(t.Context(), "order:2", nil))(t)
		wantBusy(t, "another resource", expect.Err(l.locker.Acquire(work, "order:2", nil)))
		l.release(t)
		expect.OK(t, other.Release(t.Context()))
		expect.OK(t, expect.Value(l.locker.Acquire(context.WithoutCancel(work), "order:1", nil))(t).Release(t.Context()))
	})
}
