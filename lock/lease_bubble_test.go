package lock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
)

func TestRenewalCadence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLeased(t)
		work := l.Context(t.Context())
		time.Sleep(27 * time.Second)
		l.wantAlive(t, work)
		l.release(t)
		time.Sleep(time.Minute)
		want := []time.Duration{5 * time.Second, 10 * time.Second, 15 * time.Second, 20 * time.Second, 25 * time.Second}
		if diff := cmp.Diff(want, l.redis.SentAt(locktest.Renew, l.start)); diff != "" {
			t.Errorf("-want +have:\n%s", diff)
		}
		if have := l.redis.get(); have != "" {
			t.Errorf("want a free lock, have %q", have)
		}
		if err := context.Cause(work); !errors.Is(err, context.Canceled) || errors.Is(err, lock.ErrLost) {
			t.Errorf("want the context ended by the release, have %v", err)
		}
	})
}

// TestTrustWindow cuts a holder off after its second renewal, which was sent after 10 s. Whatever
// the network does to the third, the holder is told at 24 s. That is the TTL after the second one
// less the safety margin, 1 s before somebody else may get the lock.
func TestTrustWindow(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		network locktest.Fault
	}{
		{"black hole", locktest.BlackHole},
		{"black hole and a client that knows no deadlines", locktest.OwnTimeout(time.Minute)},
		{"black hole and a client that gives up late", locktest.OwnTimeout(4500 * time.Millisecond)},
		{"refused connections", locktest.Refuse},
		// Redis prolongs the key each time, but the holder cannot know.
		{"replies lost", locktest.SwallowReply},
		{"answers that are too late", locktest.Slow(9500 * time.Millisecond)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLeased(t)
				work := l.Context(t.Context())
				time.Sleep(12 * time.Second)
				l.redis.Set(tc.network)
				time.Sleep(12*time.Second - 1)
				l.wantAlive(t, work)
				l.wantEnd(t, work, 24*time.Second)

				// Later answers change nothing.
				l.redis.Set(locktest.Fine)
				time.Sleep(2 * time.Minute)
				if err := l.Renew(t.Context()); !errors.Is(err, lock.ErrLost) {
					t.Errorf("renew of a lost lease: want ErrLost, have %v", err)
				}
				if err := l.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
					t.Errorf("release of a lost lease: want ErrLost, have %v", err)
				}
			})
		})
	}
}

// TestTrustWindowWithoutRenewal is for a lease that nobody keeps.
func TestTrustWindowWithoutRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newAbandoned(t)
		time.Sleep(14*time.Second - 1)
		if l.Deadline().IsZero() {
			t.Error("want a valid lease before its deadline")
		}
		time.Sleep(time.Nanosecond)
		if !l.Deadline().IsZero() {
			t.Error("want no valid lease at its deadline")
		}
		calls := len(l.redis.SentAt(locktest.Renew, l.start))
		if err := l.Renew(t.Context()); !errors.Is(err, lock.ErrLost) {
			t.Errorf("want ErrLost, have %v", err)
		}
		if have := len(l.redis.SentAt(locktest.Renew, l.start)); have != calls {
			t.Error("want no renewal sent past the deadline")
		}
	})
}

// TestSlowAnswerDoesNotStretchTheLease answers a renewal that was sent after 5 s only after 13 s.
// The deadline is 19 s, not 27 s.
func TestSlowAnswerDoesNotStretchTheLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLeased(t)
		l.redis.Set(locktest.Once(locktest.Renew, 1, locktest.Slow(8*time.Second)))
		work := l.Context(t.Context())
		time.Sleep(13*time.Second + 1)
		l.wantAlive(t, work)
		l.redis.Set(locktest.BlackHole)
		l.wantEnd(t, work, 19*time.Second)
		_ = l.Release(t.Context()) // joins the renewal
	})
}

// TestSlowAnswerToRenew is the same without renewal: sent after 1 s, answered after
// 9 s, good until 15 s.
func TestSlowAnswerToRenew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newAbandoned(t)
		l.redis.Set(locktest.Once(locktest.Renew, 1, locktest.Slow(8*time.Second)))
		time.Sleep(time.Second)
		if err := l.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(6*time.Second - time.Nanosecond)
		if l.Deadline().IsZero() {
			t.Error("want a valid lease before its deadline")
		}
		time.Sleep(time.Nanosecond)
		if !l.Deadline().IsZero() {
			t.Error("want no valid lease at its deadline")
		}
	})
}

// TestAnswersOutOfOrder: of two calls of Renew the one that was sent first is answered last. The
// late answer must not take back what the other has given.
func TestAnswersOutOfOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newAbandoned(t)
		l.redis.Set(locktest.Once(locktest.Renew, 1, locktest.Slow(8*time.Second)))
		var first sync.WaitGroup
		time.Sleep(time.Second)
		first.Go(func() {
			if err := l.Renew(t.Context()); err != nil {
				t.Errorf("want no error, have %v", err)
			}
		})
		time.Sleep(4 * time.Second)
		if err := l.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		first.Wait()
		time.Sleep(10*time.Second - 1)
		if l.Deadline().IsZero() {
			t.Error("want it valid until 14 s after the later sending")
		}
		time.Sleep(time.Nanosecond)
		if !l.Deadline().IsZero() {
			t.Error("want no valid lease at its deadline")
		}
	})
}

// TestLateAnswerRevivesNothing: a renewal that was sent after 5 s is answered half a second after
// the deadline. Redis still has the key.
func TestLateAnswerRevivesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLeased(t)
		l.redis.Set(locktest.Once(locktest.Renew, 1, locktest.Slow(9500*time.Millisecond)))
		l.wantEnd(t, l.Context(t.Context()), 14*time.Second)
		time.Sleep(time.Second)
		if l.redis.get() == "" {
			t.Fatal("want a key that lives on")
		}
		if !l.Deadline().IsZero() {
			t.Error("want the lease lost for good, have it valid again")
		}
		if err := l.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
			t.Errorf("want ErrLost, have %v", err)
		}
	})
}

// TestRenewalCallEndsAtTheOldDeadline looks at what a call is bounded by.
func TestRenewalCallEndsAtTheOldDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLeased(t)
		time.Sleep(5*time.Second + 1)
		if have := l.redis.last(t); have.Step != locktest.Renew || have.Bound != 9*time.Second {
			t.Errorf("want a renewal bounded by 9s, have %+v", have)
		}
		l.release(t)
	})
}

func TestFailedRenewalIsTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLeased(t)
		l.redis.Set(locktest.Once(locktest.Renew, 2, locktest.Refuse))
		work := l.Context(t.Context())
		time.Sleep(21*time.Second - 1)
		l.wantAlive(t, work)
		const first = 5 * time.Second
		want := []time.Duration{first, first + 500*time.Millisecond, 6 * time.Second, 10 * time.Second, 15 * time.Second, 20 * time.Second}
		if diff := cmp.Diff(want, l.redis.SentAt(locktest.Renew, l.start)); diff != "" {
			t.Errorf("-want +have:\n%s", diff)
		}
		l.release(t)
	})
}

// TestLeasesAreRenewedTogether: all at the same moments, whenever they were taken, so that a store can do that in one call.
func TestLeasesAreRenewedTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLeased(t)
		time.Sleep(2 * time.Second)
		other, err := l.locker.Acquire(t.Context(), "order:2", nil)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(8*time.Second + 1)
		want := []time.Duration{5 * time.Second, 5 * time.Second, 10 * time.Second, 10 * time.Second}
		if diff := cmp.Diff(want, l.redis.SentAt(locktest.Renew, l.start)); diff != "" {
			t.Errorf("-want +have:\n%s", diff)
		}
		l.release(t)
		if err := other.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestRenewalWithoutRedisIsNoBusyLoop counts the tries until the deadline.
func TestRenewalWithoutRedisIsNoBusyLoop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLeased(t)
		l.redis.Set(locktest.Refuse)
		work := l.Context(t.Context())
		l.wantEnd(t, work, 14*time.Second)
		time.Sleep(time.Minute)
		if have := len(l.redis.SentAt(locktest.Renew, l.start)); have < 10 || have > 20 {
			t.Errorf("want 10 to 20 tries, have %d", have)
		}
		l.redis.Set(locktest.Fine)
		_ = l.Release(t.Context())
	})
}

// TestNotOursEndsAtOnce takes the key away; the next renewal sees it.
func TestNotOursEndsAtOnce(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"", "somebody else's"} {
		t.Run("value "+value, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLeased(t)
				work := l.Context(t.Context())
				time.Sleep(6 * time.Second)
				l.redis.put(value)
				l.wantEnd(t, work, 10*time.Second)
				time.Sleep(time.Minute)
				if have := len(l.redis.SentAt(locktest.Renew, l.start)); have != 2 {
					t.Errorf("want no renewal after the answer, have %d in all", have)
				}
				if err := l.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
					t.Errorf("release: want ErrLost, have %v", err)
				}
				if have := l.redis.get(); have != value {
					t.Errorf("want the key left as %q, have %q", value, have)
				}
			})
		})
	}
}

// TestContextOfAnEndedLease: work must not start under a lock that is gone.
func TestContextOfAnEndedLease(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		end  func(context.Context, *leased)
	}{
		{"deadline passed", func(_ context.Context, l *leased) { abandon(l.Lease); time.Sleep(14 * time.Second) }},
		{"renewal said lost", func(ctx context.Context, l *leased) { l.redis.put(""); _ = l.Renew(ctx) }},
		{"released", func(ctx context.Context, l *leased) { _ = l.Release(ctx) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLeased(t)
				tc.end(t.Context(), l)
				after := time.Since(l.start)
				work := l.Context(t.Context())
				l.wantEnd(t, work, after)
				_ = l.Release(t.Context())
			})
		})
	}
}

// TestRenewOfADetachedLease is for callers without renewal.
func TestRenewOfADetachedLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newAbandoned(t)
		time.Sleep(10 * time.Second)
		if err := l.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.redis.Set(locktest.Refuse)
		if err := l.Renew(t.Context()); !errors.Is(err, locktest.ErrNetwork) || errors.Is(err, lock.ErrLost) {
			t.Errorf("want the network's error, have %v", err)
		}
		l.redis.Set(locktest.Fine)
		time.Sleep(14*time.Second - 1)
		if l.Deadline().IsZero() {
			t.Error("want a valid lease before the new deadline")
		}
		l.redis.Set(locktest.BlackHole)
		if err := l.Renew(t.Context()); !errors.Is(err, lock.ErrLost) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("renew that hangs past the deadline: want ErrLost and the reason, have %v", err)
		}
		l.redis.Set(locktest.Fine)
		if err := l.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
			t.Errorf("release of a lost lease: want ErrLost, have %v", err)
		}
		if err := l.Renew(t.Context()); !errors.Is(err, lock.ErrLost) {
			t.Errorf("renew after release: want ErrLost, have %v", err)
		}
		if !l.Deadline().IsZero() {
			t.Error("want a released lease invalid")
		}
	})
}

func TestContextCarriesTheFence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		if have := lock.Fence(t.Context(), "order:1"); have != 0 {
			t.Errorf("want 0 under no lock, have %d", have)
		}
		l := newLeased(t)
		if have := lock.Fence(l.Context(t.Context()), "order:1"); have != l.Fence() || have == 0 {
			t.Errorf("want %d, have %d", l.Fence(), have)
		}
		if have := l.Inner().Resource(); have != "order:1" {
			t.Errorf("want order:1, have %s", have)
		}
		l.release(t)
	})
}

// TestEndedLeaseIsInert, also when others of its holder live on.
func TestEndedLeaseIsInert(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLeased(t)
		work := l.Context(t.Context())
		inner, err := l.locker.Acquire(work, "order:1", &lock.Options{Reentrant: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := inner.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := inner.Renew(t.Context()); !errors.Is(err, lock.ErrLost) {
			t.Errorf("renew after the release: want ErrLost, have %v", err)
		}
		time.Sleep(time.Minute)
		l.wantAlive(t, work)
		l.release(t)
	})
}

// TestManyContexts: every context that was returned ends with the lease, in all the ways in which
// that ends.
func TestManyContexts(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		end  func(*testing.T, *leased)
		want error
	}{
		"released": {func(t *testing.T, l *leased) { t.Helper(); l.release(t) }, context.Canceled},
		"lost":     {func(_ *testing.T, l *leased) { l.redis.put("another"); time.Sleep(6 * time.Second) }, lock.ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLeased(t)
				var works []context.Context
				for range 3 {
					works = append(works, l.Context(t.Context()))
				}
				time.Sleep(20 * time.Second)
				renewals := len(l.redis.SentAt(locktest.Renew, l.start))
				for _, work := range works {
					l.wantAlive(t, work)
				}
				if renewals > 4 {
					t.Errorf("want one renewal every 5s in 20s, have %d", renewals)
				}
				tc.end(t, l)
				for i, work := range works {
					if cause := context.Cause(work); !errors.Is(cause, tc.want) {
						t.Errorf("context %d: want %v, have %v", i, tc.want, cause)
					}
				}
				_ = l.Release(t.Context())
			})
		})
	}
}
