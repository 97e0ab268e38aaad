package queue_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// The answer to the release of a plain Locker is lost, too.
func TestLeaseReleasedTwiceAfterRevoke(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := queue.Redis(b.opts)
	t.Cleanup(func() { _ = other.Close() })
	var answers []any
	locker := newLocker(t, lock.Redis(other), lock.Config{})
	held, err := locker.Acquire(t.Context(), b.resource, nil)
	must(t, err)
	b.revoke(t)
	other.AddHook(&sendTwice{between: func() {}, answers: &answers})
	if err := held.Release(t.Context()); !errors.Is(err, lock.ErrLost) || len(answers) != 2 {
		t.Errorf("want ErrLost after two answers, have %v after %v", err, answers)
	}
}

// A call whose answer was lost is sent again by the client, and another operator may have revoked the same lease before the
// call, or between the two. Neither hits the next holder.
func TestRevokeTwiceByTwo(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ before, between bool }{
		"nobody else":            {},
		"the other came before":  {before: true},
		"the other came between": {between: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(t *testing.T, b *bundle) {
				t.Helper()
				var answers []any
				client := queue.Redis(b.opts)
				t.Cleanup(func() { _ = client.Close() })
				byOther := func() (queue.Revoked, error) {
					r := b.revocation()
					r.By = "bob"
					return queue.Revoke(t.Context(), b.rdb, r)
				}
				held := b.acquire(t, &lock.Options{Holder: "first"})
				var next *lock.Lease
				if tt.before {
					if have, err := byOther(); err != nil || have.Holder != "first" {
						t.Errorf("the other operator: have %+v, %v", have, err)
					}
				}
				client.AddHook(&sendTwice{between: func() {
					if tt.between {
						if err := errOf(byOther()); !errors.Is(err, queue.ErrRevoked) {
							t.Errorf("the other operator: want ErrRevoked, have %v", err)
						}
					}
					if err := held.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
						t.Errorf("release: want ErrLost, have %v", err)
					}
					next = b.acquire(t, &lock.Options{Holder: "next"})
				}, answers: &answers})
				have, err := queue.Revoke(t.Context(), client, b.revocation())
				switch {
				case tt.before && (!errors.Is(err, queue.ErrRevoked) || !strings.Contains(err.Error(), "was taken from first by bob")),
					!tt.before && (err != nil || have.Holder != "first" || have.FreeWithin != 0), len(answers) != 2:
					t.Errorf("want the answer of the first call, have %+v, %v after %v", have, err, answers)
				}
				if err := errors.Join(next.Renew(t.Context()), next.Release(t.Context())); err != nil {
					t.Errorf("the next holder: %v", err)
				}
			})
		})
	}
}

// The lease that an operator names has ended, and another program has the lock. That program keeps
// it, as nobody could tell it that it has not.
func TestRevokeAnEndedLeaseOfAForeignLock(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		t.Helper()
		held := b.acquire(t, nil)
		must(t, held.Release(t.Context()))
		must(t, b.rdb.Set(t.Context(), b.lockKey(), "theirs", time.Hour).Err())
		r := b.revocation()
		r.Fence = held.Fence()
		if _, err := queue.Revoke(t.Context(), b.rdb, r); !errors.Is(err, queue.ErrOtherHolder) {
			t.Errorf("want ErrOtherHolder, have %v", err)
		}
		if have := b.value(t); have != "theirs" {
			t.Errorf("want the other program's lock as it was, have %q", have)
		}
	})
}

// A lease that ran out is not one that was revoked, whatever became of the program that had the lock
// after it.
func TestRevokeAForeignHolderBlamesNoLease(t *testing.T) {
	t.Parallel()
	b, st := setup(t), newStage(t)
	b.serve(t, queue.ServerConfig{Asynq: asynq.Config{DelayedTaskCheckInterval: noTimers}, Lock: shortTimes}, st.run)
	held, id := b.begin(t, st, 1)
	must(t, b.rdb.Set(t.Context(), b.lockKey(), "theirs", time.Hour).Err()) // as if its TTL had passed
	within(t, patience, "the loss", held.ended)
	b.revoke(t)
	held.open()
	reason := b.awaitState(t, id, asynq.TaskStateRetry).LastErr
	once(t, "a loss", errors.New(reason))
	if want := "lost " + b.resource; !strings.HasPrefix(reason, want) || strings.Contains(reason, "alice") {
		t.Errorf("want a loss by nobody, have %q", reason)
	}
	b.again(t, id)
	b.awaitGone(t, id)
}

// A task that holds its line keeps its place when its lock is revoked, whether it notices that or returns before.
func TestRevokedTaskHoldsItsLine(t *testing.T) {
	t.Parallel()
	for name, notices := range map[string]bool{"at the end of its context": true, "before it notices": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, st := setup(t), newStage(t)
			b.serve(t, queue.ServerConfig{Lock: shortTimes, Policies: map[string]queue.Policy{b.job(0).Kind(): {OnFailure: queue.OnFailureHold}}}, st.run)
			held, _ := b.begin(t, st, 1)
			b.park(t, 2, 3)
			b.revoke(t)
			if notices {
				within(t, patience, "the loss", held.ended)
			}
			held.open()
			poll.Eventually(t, "all have run", func() bool { return len(st.order()) >= 4 })
			st.wantOrder(1, 1, 2, 3)
		})
	}
}

// Who has revoked a lock, and why, stays known when others try it after that. A permit is as a lock.
func TestRevokedLockKeepsTheFirst(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]int{"a lock": 1, "a permit": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, st := setup(t), newStage(t)
			b.serve(t, queue.ServerConfig{Lock: lock.Config{TTL: 20 * time.Second, RenewEvery: 200 * time.Millisecond}, Limits: map[string]queue.Limit{b.resource: {Holders: limit}}}, st.run)
			stuck, id := b.begin(t, st, 1)
			b.revoke(t)
			r := b.revocation()
			r.By, r.Reason = "bob", "another reason"
			_, err := queue.Revoke(t.Context(), b.rdb, r)
			if !errors.Is(err, queue.ErrRevoked) || !strings.Contains(err.Error(), " by alice, and is free in ") {
				t.Errorf("want ErrRevoked by alice, have %v", err)
			}
			within(t, patience, "the end of the holder's context", stuck.ended)
			stuck.open()
			if info := b.awaitState(t, id, asynq.TaskStateRetry); !strings.Contains(info.LastErr, "alice released it: it is stuck") || info.Retried != 0 {
				t.Errorf("want the first reason and no retry used, have %q, %d", info.LastErr, info.Retried)
			}
			b.again(t, id)
			b.awaitGone(t, id)
		})
	}
}
