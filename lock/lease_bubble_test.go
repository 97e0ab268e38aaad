package lock_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
)

// TestRenewalCadence: a renewal that fails is tried again soon, and after the release none is sent.
func TestRenewalCadence(t *testing.T) {
	t.Parallel()
	const s = time.Second
	type row struct {
		network locktest.Fault
		want    []time.Duration
	}
	inBubbles(t, map[string]row{
		"all well": {locktest.Fine, []time.Duration{5 * s, 10 * s, 15 * s, 20 * s, 25 * s}},
		"two fail": {locktest.Once(locktest.Renew, 2, locktest.Refuse), []time.Duration{5 * s, 5*s + s/2, 6 * s, 10 * s, 15 * s, 20 * s, 25 * s}},
	}, func(t bubble, tc row) {
		l := newLeased(t)
		l.redis.Set(tc.network)
		work := l.Context(t.Context())
		time.Sleep(27 * s)
		l.wantAlive(t, work)
		l.release(t)
		time.Sleep(time.Minute)
		l.wantRenewals(t, tc.want...)
		l.redis.wantFree(t)
		err := context.Cause(work)
		expect.That(t, errors.Is(err, context.Canceled) && !errors.Is(err, lock.ErrLost), "want the context ended by the release, have %v", err)
	})
}

// TestLeasesAreRenewedTogether: all at the same moments, whenever they were taken, so that a store can do that in one call.
func TestLeasesAreRenewedTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLeased(t)
		time.Sleep(2 * time.Second)
		other := expect.Value(l.locker.Acquire(t.Context(), "order:2", nil))(t)
		time.Sleep(8*time.Second + 1)
		l.wantRenewals(t, 5*time.Second, 5*time.Second, 10*time.Second, 10*time.Second)
		l.release(t)
		expect.OK(t, other.Release(t.Context()))
	})
}

// TestTrustWindow cuts a holder off after its second renewal, which was sent after 10 s. Whatever
// the network does to the third, the holder is told at 24 s. That is the TTL after the second one
// less the safety margin, 1 s before somebody else may get the lock.
func TestTrustWindow(t *testing.T) {
	t.Parallel()
	inBubbles(t, map[string]locktest.Fault{
		"black hole": locktest.BlackHole,
		"black hole and a client that knows no deadlines": locktest.OwnTimeout(time.Minute),
		"black hole and a client that gives up late":      locktest.OwnTimeout(4500 * time.Millisecond),
		"refused connections":                             locktest.Refuse,
		// Redis prolongs the key each time, but the holder cannot know.
		"replies lost":              locktest.SwallowReply,
		"answers that are too late": locktest.Slow(9500 * time.Millisecond),
	}, func(t bubble, network locktest.Fault) {
		l := newLeased(t)
		work := l.Context(t.Context())
		time.Sleep(12 * time.Second)
		l.redis.Set(network)
		time.Sleep(12*time.Second - 1)
		l.wantAlive(t, work)
		l.wantEnd(t, work, 24*time.Second)

		// Later answers change nothing.
		l.redis.Set(locktest.Fine)
		time.Sleep(2 * time.Minute)
		have := len(l.redis.SentAt(locktest.Renew, l.start))
		expect.That(t, have <= 25, "want no busy loop and nothing sent past the deadline, have %d renewals", have)
		wantLost(t, "renew", l.Renew(t.Context()))
		wantLost(t, "release", l.Release(t.Context()))
	})
}

// TestTrustWindowWithoutRenewal is for a lease that nobody keeps.
func TestTrustWindowWithoutRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newAbandoned(t)
		l.wantTrustedFor(t, 14*time.Second)
		wantLost(t, "renew", l.Renew(t.Context()))
		l.wantRenewals(t) // none is sent past the deadline
	})
}

// TestSlowAnswerToRenew does not stretch the lease: sent after 1 s, answered after 9 s, good until 15 s. Nor does the late answer
// take back what another renewal has given, which was sent after 5 s and answered at once.
func TestSlowAnswerToRenew(t *testing.T) {
	t.Parallel()
	inBubbles(t, map[string]bool{"alone": false, "overtaken": true}, func(t bubble, overtaken bool) {
		l := newAbandoned(t)
		l.redis.Set(locktest.Once(locktest.Renew, 1, locktest.Slow(8*time.Second)))
		time.Sleep(time.Second)
		var first sync.WaitGroup
		first.Go(func() {
			if err := l.Renew(t.Context()); err != nil {
				t.Error(err)
			}
		})
		left := 6 * time.Second
		if overtaken {
			time.Sleep(4 * time.Second)
			expect.OK(t, l.Renew(t.Context()))
			left = 10 * time.Second
		}
		first.Wait()
		l.wantTrustedFor(t, left)
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
		expect.Need(t, l.redis.get() != "", "want a key that lives on")
		expect.That(t, l.Deadline().IsZero(), "want the lease lost for good, have it valid again")
		wantLost(t, "release", l.Release(t.Context()))
	})
}

// TestRenewalCallEndsAtTheOldDeadline looks at what a call is bounded by.
func TestRenewalCallEndsAtTheOldDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLeased(t)
		time.Sleep(5*time.Second + 1)
		have := l.redis.last(t)
		expect.That(t, have.Step == locktest.Renew && have.Bound == 9*time.Second, "want a renewal bounded by 9s, have %+v", have)
		l.release(t)
	})
}

// TestContextOfAnEndedLease: work must not start under a lock that is gone.
func TestContextOfAnEndedLease(t *testing.T) {
	t.Parallel()
	inBubbles(t, map[string]func(context.Context, *leased){
		"deadline passed":   func(_ context.Context, l *leased) { abandon(l.Lease); time.Sleep(14 * time.Second) },
		"renewal said lost": func(ctx context.Context, l *leased) { l.redis.put(""); _ = l.Renew(ctx) },
		"released":          func(ctx context.Context, l *leased) { _ = l.Release(ctx) },
	}, func(t bubble, end func(context.Context, *leased)) {
		l := newLeased(t)
		end(t.Context(), l)
		l.wantEnd(t, l.Context(t.Context()), time.Since(l.start))
		_ = l.Release(t.Context())
	})
}

// TestRenewOfADetachedLease is for callers without renewal. A failure of the network is no loss before the deadline.
func TestRenewOfADetachedLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newAbandoned(t)
		time.Sleep(10 * time.Second)
		expect.OK(t, l.Renew(t.Context()))
		l.redis.Set(locktest.Refuse)
		err := l.Renew(t.Context())
		expect.That(t, errors.Is(err, locktest.ErrNetwork) && !errors.Is(err, lock.ErrLost), "want the network's error, have %v", err)
		time.Sleep(14*time.Second - 1)
		expect.That(t, !l.Deadline().IsZero(), "want a valid lease before the new deadline")
		l.redis.Set(locktest.BlackHole)
		err = l.Renew(t.Context())
		wantLost(t, "renew that hangs past the deadline", err)
		expect.Is(t, "its reason", err, context.DeadlineExceeded)
		l.redis.Set(locktest.Fine)
		wantLost(t, "release", l.Release(t.Context()))
	})
}

// TestEndedLeaseIsInert, also when others of its holder live on.
func TestEndedLeaseIsInert(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLeased(t)
		work := l.Context(t.Context())
		inner := l.again(t, work)
		expect.OK(t, inner.Release(t.Context()))
		wantLost(t, "renew after the release", inner.Renew(t.Context()))
		time.Sleep(time.Minute)
		l.wantAlive(t, work)
		l.release(t)
	})
}

// TestLongestHold: a stuck holder is told. Others are kept out while its work winds down, and nobody renews the lock any more.
func TestLongestHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLeasedAs(t, &lock.Options{MaxHold: 22 * time.Second})
		work := l.Context(t.Context())
		l.wantEnd(t, work, 22*time.Second)
		wantHeldTooLong(t, context.Cause(work))
		expect.That(t, l.redis.get() != "", "want others kept out for a while")
		l.wantExpired(t)
		wantLost(t, "release", l.Release(t.Context()))
	})
}

// TestManyContexts: every context that was returned ends with the lease, in all the ways in which that ends, and at once when
// the store says that the lock is gone. Nothing is sent after that, and what is there by then stays.
func TestManyContexts(t *testing.T) {
	t.Parallel()
	type row struct {
		end  func(bubble, *leased)
		want error
	}
	lose := func(value string) row {
		return row{func(t bubble, l *leased) {
			l.redis.put(value)
			time.Sleep(time.Minute)
			expect.Equal(t, "renewals in all, as none comes after the answer", len(l.redis.SentAt(locktest.Renew, l.start)), 5)
			wantLost(t, "release", l.Release(t.Context()))
			expect.Equal(t, "the key", l.redis.get(), value)
		}, lock.ErrLost}
	}
	inBubbles(t, map[string]row{
		"released": {func(t bubble, l *leased) { l.release(t) }, context.Canceled},
		"deleted":  lose(""),
		"taken":    lose("somebody else's"),
	}, func(t bubble, tc row) {
		l := newLeased(t)
		works := []context.Context{l.Context(t.Context()), l.Context(t.Context()), l.Context(t.Context())}
		time.Sleep(21 * time.Second)
		for _, work := range works {
			l.wantAlive(t, work)
		}
		l.wantRenewals(t, 5*time.Second, 10*time.Second, 15*time.Second, 20*time.Second)
		tc.end(t, l)
		for i, work := range works {
			cause := context.Cause(work)
			expect.That(t, errors.Is(cause, tc.want), "context %d: want %v, have %v", i, tc.want, cause)
		}
	})
}

// A recorder keeps the arguments of every script, and grants every lock.
type recorder struct {
	redis.Scripter // whatever is not below panics

	args []string
}

var uuids = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

func (r *recorder) EvalSha(ctx context.Context, _ string, keys []string, args ...any) *redis.Cmd {
	r.args = append(r.args, uuids.ReplaceAllString(fmt.Sprint(keys, args), "uuid"))
	cmd := redis.NewCmd(ctx)
	if args[1] == "acquire" {
		cmd.SetVal([]any{[]any{int64(1), "1", "-1", "", keys[0]}})
	} else { // renew and release
		cmd.SetVal([]any{int64(1)})
	}
	return cmd
}

// TestNoClientClockInScripts: what is sent does not depend on the time that a
// client believes it is.
func TestNoClientClockInScripts(t *testing.T) {
	t.Parallel()
	var first []string
	for _, skew := range []time.Duration{0, 10 * 365 * 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(skew)
			r := &recorder{}
			locker := lockerOn(t, lock.Redis(r))
			for _, opts := range []*lock.Options{nil, {Wait: lock.Forever, Retry: lock.Fixed(time.Second)}, {Wait: lock.Forever}} {
				held := expect.Value(locker.Acquire(t.Context(), "order:1", opts))(t)
				time.Sleep(6 * time.Second)
				expect.OK(t, held.Release(t.Context()))
			}
			expect.Need(t, len(r.args) == 9, "want three scripts for each of three leases, have %d", len(r.args))
			if first == nil {
				first = r.args
			}
			expect.That(t, slices.Equal(r.args, first), "want %q, have %q", first, r.args)
		})
	}
}

// stepped is a context after the wall clock has stepped past its deadline. The deadline has no
// monotonic reading, so its timer fires an hour later.
type stepped struct{ context.Context } //nolint:containedctx // it is one

func (stepped) Deadline() (time.Time, bool) { return time.Now().Round(0).Add(-time.Minute), true }

// TestDeadlineThatTheClockHasSteppedPast: it has ended, for all ways to wait, and nothing waits for
// the context to notice.
func TestDeadlineThatTheClockHasSteppedPast(t *testing.T) {
	t.Parallel()
	inBubbles(t, ways, func(t bubble, wait lock.Options) {
		l := newAbandoned(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		_, err := l.locker.Acquire(stepped{ctx}, "order:1", &wait)
		if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took > time.Minute {
			t.Errorf("want the deadline passed at once, have %v after %v", err, took)
		}
		l.release(t)
	})
}
