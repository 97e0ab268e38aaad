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
	if err != nil {
		t.Fatal(err)
	}
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
		another, err := lock.New(l.redis.Store, lock.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(another.Close)
		held, err := another.Acquire(t.Context(), "order:1", &lock.Options{Wait: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if after := time.Since(l.start); after < 20*time.Second || after > 21*time.Second {
			t.Errorf("want the lock after 20s, have it after %v", after)
		}
		if err := l.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
			t.Errorf("want ErrLost, have %v", err)
		}
		if err := held.Release(t.Context()); err != nil {
			t.Errorf("want the other's lock untouched, have %v", err)
		}
	})
}

// A lease is renewed while anybody may be at work under it, and only then.
func TestRenewedWhileSomebodyWorks(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(t *testing.T, l *leased, first, second context.Context){
		"two contexts": func(t *testing.T, l *leased, first, second context.Context) {
			t.Helper()
			l.Context(first)
			l.Context(second)
		},
		"two leases": func(t *testing.T, l *leased, first, second context.Context) {
			t.Helper()
			l.again(t, l.Context(first)).Context(second)
		},
	} {
		for _, secondFirst := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					l := newLeased(t)
					first, stopFirst := context.WithCancel(t.Context())
					second, stopSecond := context.WithCancel(t.Context())
					begin(t, l, first, second)
					if secondFirst {
						stopFirst, stopSecond = stopSecond, stopFirst
					}
					l.wantRenewed(t)
					stopFirst()
					l.wantRenewed(t)
					stopSecond()
					l.wantExpired(t)
				})
			})
		}
	}
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
		if l.Lease, err = l.locker.Acquire(ctx, "order:1", nil); err != nil {
			t.Fatal(err)
		}
		stop()
		l.wantRenewed(t)
		l.release(t)
	})
}

// New work under a lease whose contexts have all ended is renewed from then on.
func TestNewWorkIsRenewed(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(t *testing.T, l *leased, ended context.Context){
		"a context": func(t *testing.T, l *leased, _ context.Context) { t.Helper(); l.Context(t.Context()) },
		"a lease": func(t *testing.T, l *leased, ended context.Context) {
			t.Helper()
			second := l.again(t, context.WithoutCancel(ended))
			l.release(t) //nolint:contextcheck // a test's
			l.Lease = second
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLeased(t)
				ctx, stop := context.WithCancel(t.Context())
				work := l.Context(ctx)
				time.Sleep(6 * time.Second)
				stop()
				l.Context(ctx) // ended, so it changes nothing
				time.Sleep(13*time.Second - time.Nanosecond)
				begin(t, l, work) // at the last moment
				l.wantRenewed(t)
				l.release(t)
			})
		})
	}
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
			if _, err := l.locker.Acquire(context.WithoutCancel(ctx), "order:1", nil); !errors.Is(err, lock.ErrBusy) {
				t.Errorf("want the lock held, have %v", err)
			}
			return nil
		})
		if err != nil {
			t.Errorf("want no loss, have %v", err)
		}
		if have := l.redis.get(); have != "" {
			t.Errorf("want the lock free, have %q", have)
		}
	})
}
