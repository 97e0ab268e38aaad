package queue_test

import (
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/queue"
)

// waitLockKey is the key of the lock for which the bundle's tasks wait if theirs is on an external store.
func (b *bundle) waitLockKey() string { return "wait:" + b.lockKey() }

// A task with a lock on an external store keeps its reservation for as long as it runs. Otherwise
// the next would be woken in vain.
func TestReservationIsRenewed(t *testing.T) {
	t.Parallel()
	b, st := setup(t), newStage(t)
	cfg := lock.Config{RenewEvery: 200 * time.Millisecond}
	b.serve(t, queue.ServerConfig{Guard: queue.GuardConfig{Store: locktest.NewMemory(), Lock: cfg}}, st.run)
	holder := st.hold(0)
	id := b.enqueue(t, b.job(0))
	within(t, patience, "the holder", holder.entered)
	left := func() time.Duration { return b.rdb.PTTL(t.Context(), b.waitLockKey()).Val() }
	last := left()
	poll.Eventually(t, "the turn to be renewed", func() bool {
		before := last
		last = left()
		return last > before
	})
	holder.open()
	b.awaitGone(t, id)
}

// A task whose lock was busy on the external store may come too late for its reservation. The task
// then has its old position in the wait queue.
func TestMissedReservationCostsNoPlace(t *testing.T) {
	t.Parallel()
	b, st, j, memory := setup(t), newStage(t), &journal{}, locktest.NewMemory()
	release := b.holdBy(t, newLocker(t, memory, lock.Config{}))
	b.serve(t, queue.ServerConfig{Asynq: asynq.Config{DelayedTaskCheckInterval: noFallback}, Guard: queue.GuardConfig{Store: memory, Observe: j.observe}}, st.run)
	ids := make([]string, 2)
	for n := range ids {
		ids[n] = b.enqueue(t, b.job(n))
		j.await(t, queue.EventParked, ids[n], 1)
	}
	if err := b.rdb.Set(t.Context(), b.waitLockKey(), "siding:1:another task", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	if err := b.inspector.RunTask(b.queue, ids[0]); err != nil { // its fallback time comes
		t.Fatal(err)
	}
	j.await(t, queue.EventParked, ids[0], 2)
	release()
	if err := b.rdb.Del(t.Context(), b.waitLockKey()).Err(); err != nil {
		t.Fatal(err)
	}
	b.awaitGone(t, ids...)
	st.wantOrder(0, 1)
}
