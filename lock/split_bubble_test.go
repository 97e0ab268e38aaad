package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
)

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
			if tc.taken != (err == nil) || len(p.claims) != tc.asked {
				t.Fatalf("%d split votes: want it taken (%t) after %d claims, have %v after %d", tc.splits, tc.taken, tc.asked, err, len(p.claims))
			}
			tokens := make(map[string]bool)
			for _, claim := range p.claims {
				tokens[claim.Token] = true
			}
			if len(tokens) != tc.asked {
				t.Errorf("want a token of its own for each claim, have %d for %d", len(tokens), tc.asked)
			}
			if took := time.Since(start); took >= 300*time.Millisecond || tc.splits > 0 && took == 0 {
				t.Errorf("%d split votes: want short pauses between the claims, have %v in all", tc.splits, took)
			}
			if !tc.taken {
				busy, ok := errors.AsType[*lock.BusyError](err)
				if !ok || busy.Holder != "nobody yet, as several asked at once" || busy.Foreign {
					t.Errorf("want it busy with nobody as its holder, have %v", err)
				}
				return
			}
			abandon(held)
			// The time of a request counts from its own sending.
			if at := p.at[len(p.at)-1]; !at.Equal(time.Now()) {
				t.Errorf("want the last claim sent now, have it at %v", at)
			}
			time.Sleep(14*time.Second - 1)
			if held.Deadline().IsZero() {
				t.Error("want it trusted for 14s from the sending of the last claim")
			}
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
		if !ok || busy.Holder != "worker 2" || !busy.Split || busy.Foreign || busy.Remaining != 3*time.Second {
			t.Errorf("want it busy with worker 2 for 3s, have %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 1)
		defer cancel()
		if _, err := lockerOn(t, undecided{}).Acquire(ctx, "order:1", nil); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, lock.ErrBusy) {
			t.Errorf("want the context's error and ErrBusy, have %v", err)
		}
	})
}
