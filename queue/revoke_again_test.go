package queue_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/embedded"
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
	if err != nil {
		t.Fatal(err)
	}
	if _, err := queue.Revoke(t.Context(), b.rdb, b.revocation()); err != nil {
		t.Fatal(err)
	}
	other.AddHook(&sendTwice{between: func() {}, answers: &answers})
	if err := held.Release(t.Context()); !errors.Is(err, lock.ErrLost) || len(answers) != 2 {
		t.Errorf("want ErrLost after two answers, have %v after %v", err, answers)
	}
}

// Two operators revoke one lease, and the client of the first or of the second sends its call again.
// Neither hits the next holder.
func TestRevokeTwiceByTwo(t *testing.T) {
	t.Parallel()
	for name, otherFirst := range map[string]bool{"the other came before": true, "the other came between": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(t *testing.T, b *bundle) {
				t.Helper()
				var answers []any
				client := queue.Redis(b.opts)
				t.Cleanup(func() { _ = client.Close() })
				byOther := func() {
					r := b.revocation()
					r.By = "bob"
					have, err := queue.Revoke(t.Context(), b.rdb, r)
					if otherFirst && (err != nil || have.Holder != "first") || !otherFirst && !errors.Is(err, queue.ErrRevoked) {
						t.Errorf("the other operator: have %+v, %v", have, err)
					}
				}
				held := b.acquire(t, &lock.Options{Holder: "first"})
				var next *lock.Lease
				if otherFirst {
					byOther()
				}
				client.AddHook(&sendTwice{between: func() {
					if !otherFirst {
						byOther()
					}
					if err := held.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
						t.Errorf("release: want ErrLost, have %v", err)
					}
					next = b.acquire(t, &lock.Options{Holder: "next"})
				}, answers: &answers})
				have, err := queue.Revoke(t.Context(), client, b.revocation())
				if otherFirst && (!errors.Is(err, queue.ErrRevoked) || !strings.Contains(err.Error(), "was taken from first by bob")) || !otherFirst && (err != nil || have.FreeWithin != 0) || len(answers) != 2 {
					t.Errorf("want the answer of the first call, have %+v, %v after %v", have, err, answers)
				}
				if err := next.Renew(t.Context()); err != nil {
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
		if err := held.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := b.rdb.Set(t.Context(), b.lockKey(), "theirs", time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
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
	held := st.hold(1)
	id := b.enqueue(t, b.job(1))
	within(t, patience, "the holder", held.entered)
	if err := b.rdb.Set(t.Context(), b.lockKey(), "theirs", time.Hour).Err(); err != nil { // as if its TTL had passed
		t.Fatal(err)
	}
	within(t, patience, "the loss", held.ended)
	if _, err := queue.Revoke(t.Context(), b.rdb, b.revocation()); err != nil {
		t.Fatal(err)
	}
	held.open()
	reason := b.awaitState(t, id, asynq.TaskStateRetry).LastErr
	if want := "lost " + b.resource; !strings.HasPrefix(reason, want) || strings.Contains(reason, "alice") {
		t.Errorf("want a loss by nobody, have %q", reason)
	}
	b.again(t, id)
	b.awaitGone(t, id)
}

// The Redis within a process revokes leases, too.
func TestRevokeOnTheEmbeddedRedis(t *testing.T) {
	t.Parallel()
	server, err := embedded.Start(embedded.Config{Port: embedded.AnyPort})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	b := setupOn(t, redis.UniversalOptions{Addrs: []string{server.Addr()}})
	held := b.acquire(t, &lock.Options{Holder: "first", TTL: time.Minute})
	have, err := queue.Revoke(t.Context(), b.rdb, b.revocation())
	if err != nil || have.Holder != "first" || have.FreeWithin <= 0 || have.FreeWithin > time.Minute {
		t.Errorf("want it free within a minute, have %+v, %v", have, err)
	}
	if left := b.rdb.PTTL(t.Context(), b.lockKey()).Val(); left <= 0 || left > time.Minute {
		t.Errorf("want the lease's TTL kept, have %v", left)
	}
	if err := held.Renew(t.Context()); !errors.Is(err, lock.ErrLost) {
		t.Errorf("renewal: want ErrLost, have %v", err)
	}
	if err := held.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
		t.Errorf("release: want ErrLost, have %v", err)
	}
	if next := b.acquire(t, nil); next.Fence() <= held.Fence() {
		t.Errorf("want a fence above %d, have %d", held.Fence(), next.Fence())
	}
}

// A task that holds its line keeps its place when its lock is revoked, whether it notices that or returns before.
func TestRevokedTaskHoldsItsLine(t *testing.T) {
	t.Parallel()
	for name, notices := range map[string]bool{"at the end of its context": true, "before it notices": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, st := setup(t), newStage(t)
			b.serve(t, queue.ServerConfig{Lock: shortTimes, Policies: map[string]queue.Policy{b.job(0).Kind(): {OnFailure: queue.OnFailureHold}}}, st.run)
			held := st.hold(1)
			b.enqueue(t, b.job(1))
			within(t, patience, "the holder", held.entered)
			b.park(t, 2, 3)
			if _, err := queue.Revoke(t.Context(), b.rdb, b.revocation()); err != nil {
				t.Fatal(err)
			}
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
			stuck := st.hold(1)
			id := b.enqueue(t, b.job(1))
			within(t, patience, "the holder", stuck.entered)
			if _, err := queue.Revoke(t.Context(), b.rdb, b.revocation()); err != nil {
				t.Fatal(err)
			}
			r := b.revocation()
			r.By, r.Reason = "bob", "another reason"
			_, err := queue.Revoke(t.Context(), b.rdb, r)
			if !errors.Is(err, queue.ErrRevoked) || !strings.Contains(err.Error(), " by alice, and is free in ") {
				t.Errorf("want ErrRevoked by alice, have %v", err)
			}
			within(t, patience, "the end of the holder's context", stuck.ended)
			stuck.open()
			if info := b.awaitState(t, id, asynq.TaskStateRetry); !strings.Contains(info.LastErr, "alice released it: it is stuck") {
				t.Errorf("want the first reason, have %q", info.LastErr)
			}
			b.again(t, id)
			b.awaitGone(t, id)
		})
	}
}
