package lock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/testenv/expect"
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
	}, func(t bubble, tc row) {
		f, start := newFake().with(locktest.Once(locktest.Acquire, 1, tc.network)), time.Now()
		_, err := lockerOn(t, f.Store).Acquire(t.Context(), "order:1", nil)
		wantBroken(t, "acquire", err)
		expect.That(t, (tc.want == nil || errors.Is(err, tc.want)) && time.Since(start) == tc.took,
			"want %v after %v, have %v after %v", tc.want, tc.took, err, time.Since(start))
		f.wantFree(t)
		have := f.last(t)
		expect.That(t, have.Step == locktest.Release && !have.Dead && have.Bound > 0 && have.Bound <= 5*time.Second,
			"want a live and bounded release as the last call, have %+v", have)
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
	inBubbles(t, map[string]bool{"before": true, "as it is asked": false}, func(t bubble, before bool) {
		ctx, cancel := context.WithCancelCause(t.Context())
		asked := endingContext{ctx, func() { cancel(stopped) }}
		if before {
			cancel(stopped)
		}
		f := newFake()
		_, err := lockerOn(t, f.Store).Acquire(asked, "order:1", nil)
		expect.That(t, errors.Is(err, stopped) && errors.Is(err, context.Canceled), "want the context's error and its cause, have %v", err)
		expect.That(t, !before || len(f.Sent()) == 0, "want nothing sent, have %d calls", len(f.Sent()))
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
		wantHeldTooLong(t, expect.Ended(t, held.Context(t.Context())))
		wantHeldTooLong(t, held.Release(t.Context()))
	}
}

// A polled store is one in memory in which the first so many votes are split.
type polled struct {
	lock.Store

	splits int
	claims []store.Request
	at     []time.Time
}

func (p *polled) Acquire(ctx context.Context, claim store.Request) (store.Result, error) {
	p.claims, p.at = append(p.claims, claim), append(p.at, time.Now())
	if len(p.claims) <= p.splits {
		return store.Result{Split: true}, nil
	}
	return p.Store.Acquire(ctx, claim)
}

// TestSplitVote: after a split vote the Locker asks again, each time with another token and after a
// random pause. In the end it gives up.
func TestSplitVote(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		splits, asked int
		taken         bool
	}{{0, 1, true}, {1, 2, true}, {4, 5, true}, {5, 5, false}} {
		synctest.Test(t, func(t *testing.T) {
			p := &polled{Store: locktest.NewMemory(), splits: tc.splits}
			start := time.Now()
			held, err := lockerOn(t, p).Acquire(t.Context(), "order:1", nil)
			expect.Need(t, tc.taken == (err == nil) && len(p.claims) == tc.asked,
				"%d split votes: want it taken (%t) after %d claims, have %v after %d", tc.splits, tc.taken, tc.asked, err, len(p.claims))
			tokens := make(map[string]bool)
			for _, claim := range p.claims {
				tokens[claim.Token] = true
			}
			expect.That(t, len(tokens) == tc.asked, "want a token of its own for each claim, have %d for %d", len(tokens), tc.asked)
			if took := time.Since(start); took >= 300*time.Millisecond || tc.splits > 0 && took == 0 {
				t.Errorf("%d split votes: want short pauses between the claims, have %v in all", tc.splits, took)
			}
			if !tc.taken {
				busy, ok := errors.AsType[*lock.BusyError](err)
				expect.That(t, ok && busy.Holder == "nobody yet, as several asked at once" && !busy.Foreign,
					"want it busy with nobody as its holder, have %v", err)
				return
			}
			abandon(held)
			// The time of a request counts from its own sending.
			at := p.at[len(p.at)-1]
			expect.That(t, at.Equal(time.Now()), "want the last claim sent now, have it at %v", at)
			time.Sleep(14*time.Second - 1)
			expect.That(t, !held.Deadline().IsZero(), "want it trusted for 14s from the sending of the last claim")
			_ = held.Release(t.Context())
		})
	}
}

// undecided is a store that cannot tell whether somebody has enough of the votes.
type undecided struct{ lock.Store }

func (undecided) Acquire(context.Context, store.Request) (store.Result, error) {
	return store.Result{Split: true, Holder: "siding:1:worker 2", Left: 3 * time.Second}, nil
}

// TestSplitVoteNamesWhoMayHoldIt, and asks again first. The pauses end with the caller's context.
func TestSplitVoteNamesWhoMayHoldIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, err := lockerOn(t, undecided{}).Acquire(t.Context(), "order:1", nil)
		busy, ok := errors.AsType[*lock.BusyError](err)
		expect.That(t, ok && busy.Holder == "worker 2" && busy.Split && !busy.Foreign && busy.Remaining == 3*time.Second,
			"want it busy with worker 2 for 3s, have %v", err)
		ctx, cancel := context.WithTimeout(t.Context(), 1)
		defer cancel()
		if _, err := lockerOn(t, undecided{}).Acquire(ctx, "order:1", nil); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, lock.ErrBusy) {
			t.Errorf("want the context's error and ErrBusy, have %v", err)
		}
	})
}

// A limited store has a lock with a permit left: only who knows no limit is refused. An answer takes a second.
type limited struct{ *locktest.Memory }

func (limited) RuleOf(string) *store.Rule { return nil }

func (limited) Acquire(_ context.Context, c store.Request) (store.Result, error) {
	time.Sleep(time.Second)
	return store.Result{Taken: c.Rule != nil, Permit: store.PermitKey(c.Key, "2"), Holder: "siding:1:somebody"}, nil
}

// The callers of one process share a refusal only with those who ask for the same.
func TestRefusalConcernsOneLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locker := lockerOn(t, limited{locktest.NewMemory()})
		limits := []int{0, 0, 3} // the first asks, and the others wait behind it
		errs, all := make([]error, len(limits)), sync.WaitGroup{}
		for i, limit := range limits {
			all.Go(func() {
				var held *lock.Lease
				if held, errs[i] = locker.Acquire(t.Context(), "order:1", &lock.Options{Limit: limit}); errs[i] == nil {
					_ = held.Release(t.Context())
				}
			})
			synctest.Wait()
		}
		all.Wait()
		for i, limit := range limits {
			expect.That(t, errors.Is(errs[i], lock.ErrBusy) == (limit == 0) && (limit == 0 || errs[i] == nil),
				"caller %d, with a limit of %d: want it refused only without one, have %v", i, limit, errs[i])
		}
	})
}

// That an answer came too late for one caller does not concern another, whose lease is longer.
func TestDeadlineConcernsOneTTL(t *testing.T) {
	t.Parallel()
	inBubbles(t, ways, func(t bubble, how lock.Options) {
		locker := lockerOn(t, newFake().with(locktest.Slow(120*time.Millisecond)).Store)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		var all sync.WaitGroup
		ask := func(ctx context.Context, ttl time.Duration, good bool) {
			opts := how
			opts.TTL = ttl
			all.Go(func() {
				held, err := locker.Acquire(ctx, "order:1", &opts)
				expect.That(t, (err == nil) == good && !errors.Is(err, lock.ErrBusy), "a TTL of %v: want the lock %t, have %v", ttl, good, err)
				if err == nil {
					_ = held.Release(ctx)
				}
			})
			synctest.Wait()
		}
		ask(ctx, 0, false) // asks, and goes away; the others wait behind it
		ask(t.Context(), 100*time.Millisecond, false)
		ask(t.Context(), 0, true)
		all.Wait()
	})
}

// A store that panics once, as a hook of the user's client may, keeps nobody from its lock.
func TestStoreThatPanics(t *testing.T) {
	t.Parallel()
	inBubbles(t, map[string]string{"acquire": locktest.Acquire, "release": locktest.Release}, func(t bubble, step string) {
		f := newFake()
		locker := lockerOn(t, f.Store)
		f.Set(locktest.Only(step, func(context.Context, string, func() error) error { panic("a hook") }))
		var held *lock.Lease
		func() {
			defer func() { expect.Equal(t, "panic", recover(), any("a hook")) }()
			held = acquire(t, locker, nil)
			_ = held.Release(t.Context())
		}()
		f.Set(locktest.Fine)
		if held != nil {
			expect.OK(t, held.Release(t.Context()))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for range 2 {
			held := expect.Value(locker.Acquire(ctx, "order:1", nil))(t)
			expect.OK(t, held.Release(ctx))
		}
	})
}
