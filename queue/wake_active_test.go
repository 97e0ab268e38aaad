package queue_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// A parkLatch is a tap that holds back the first parking of a task, as if its worker were slow, or
// dead. Only a task without a header is always parked by its worker. A dequeue may park one with a
// header.
type parkLatch struct {
	reached, opened chan struct{}
	used            atomic.Bool
	idle            atomic.Bool // no worker takes a task
}

func newParkLatch() *parkLatch {
	return &parkLatch{reached: make(chan struct{}), opened: make(chan struct{})}
}

func (l *parkLatch) tap(t *testing.T) tap {
	t.Helper()
	return func(_ context.Context, cmd redis.Cmder, send func() error) error {
		if isDequeue(cmd) && l.idle.Load() {
			return redis.Nil
		}
		if isPark(cmd) && !l.used.Swap(true) {
			close(l.reached)
			select {
			case <-l.opened:
			case <-t.Context().Done():
			}
		}
		return send()
	}
}

// catch serves b, while a holder in another queue has the lock. id is a task that has joined the wait
// queue, and that the latch keeps from being parked. The guards of both have a configuration each.
func (l *parkLatch) catch(t *testing.T, b *bundle, st *stage, holders, servers lock.Config) (holder *gate, id string) {
	t.Helper()
	holder = b.holdElsewhere(t, st, holders)
	(&plain{guardConfig: queue.GuardConfig{Lock: servers, Resources: resources()}, onTasks: l.tap(t)}).serve(t, b, st)
	id = b.enqueuePlain(t, b.job(1))
	within(t, patience, "the park", l.reached)
	return holder, id
}

// awaitMarked waits until a task that is still active has been woken.
func (b *bundle) awaitMarked(t *testing.T, id string) {
	t.Helper()
	poll.Eventually(t, "the wake-up to be marked", func() bool {
		noted, err := b.rdb.HExists(t.Context(), b.taskKey(id), "siding_woken").Result()
		return err == nil && noted
	})
	if have := b.state(id); have != asynq.TaskStateActive {
		t.Errorf("want the task active, have %v", have)
	}
}

// A waiter may be woken while it is still active. It has joined the wait queue, but is not parked
// yet. Once parked, it comes at once.
func TestWokenWhileActive(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st, latch := newStage(t), newParkLatch()
		holder, id := latch.catch(t, b, st, longTimeout, lock.Config{})
		b.wantWaiters(t, id)
		holder.open()
		b.awaitMarked(t, id)
		start := time.Now()
		close(latch.opened)
		b.awaitGone(t, id)
		if took := time.Since(start); took > prompt { // its fallback time is in 16 s
			t.Errorf("want it to come at once, have %v", took)
		}
		poll.Eventually(t, "an empty wait queue", func() bool { return len(b.waiters(t)) == 0 })
	})
}

// A waiter is woken while active, and then parked. No worker is free for more than a second. Within
// the hand-off timeout the lock is still reserved for the waiter.
func TestWokenWhileActiveKeepsItsReservation(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st, latch := newStage(t), newParkLatch()
		holder, first := latch.catch(t, b, st, longTimeout, lock.Config{})
		second := b.park(t, 2)[0]
		b.wantWaiters(t, first, second)
		holder.open()
		b.awaitMarked(t, first)
		latch.idle.Store(true)
		close(latch.opened)
		b.awaitState(t, first, asynq.TaskStatePending)
		poll.Eventually(t, "the waiter to be confirmed", func() bool { return !slices.Contains(b.waiters(t), first) })
		b.wantWaiters(t, second)
		latch.idle.Store(false)
		b.awaitGone(t, first, second)
		st.wantOrder(0, 1, 2)
	})
}

// A waiter whose worker died before the parking is dropped after about a second. The next one then
// gets the lock. The dead one's task is not lost.
func TestDeadActiveWaiterIsDropped(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st, latch := newStage(t), newParkLatch()
		holder, dead := latch.catch(t, b, st, longTimeout, lock.Config{})
		next := b.park(t, 2)[0]
		start := time.Now()
		holder.open()
		b.awaitGone(t, next)
		if took := time.Since(start); took < 900*time.Millisecond || took > prompt {
			t.Errorf("want the next one served after about 1 s, have %v", took)
		}
		b.wantWaiters(t)
		close(latch.opened)
		b.awaitGone(t, dead)
		st.wantOrder(0, 2, 1)
	})
}

// The same with a hand-off timeout that is shorter than that second. The dead waiter must not stay at
// the head, as each release would then cost another hand-off timeout.
func TestDeadActiveWaiterAndAShortHandoffTimeout(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st, latch := newStage(t), newParkLatch()
		short := lock.Config{HandoffTimeout: 600 * time.Millisecond}
		holder, dead := latch.catch(t, b, st, short, short)
		next := b.park(t, 2)[0]
		start := time.Now()
		holder.open()
		b.awaitGone(t, next)
		if took := time.Since(start); took > prompt { // its fallback time is in 16 s
			t.Errorf("want the next one woken, have %v", took)
		}
		b.wantWaiters(t)
		close(latch.opened)
		b.awaitGone(t, dead)
	})
}

// A wake-up that is late finds the task in the back-off after its own failure, and leaves it there.
func TestLateWake(t *testing.T) {
	t.Parallel()
	b, st := setupStepwise(t), newStage(t)
	late := make(chan struct{})
	var calls atomic.Int32
	p := &plain{onLocks: func(_ context.Context, cmd redis.Cmder, send func() error) error {
		if isWake(cmd) {
			calls.Add(1)
			<-late
			defer calls.Add(-1)
		}
		return send()
	}}
	p.serve(t, b, st)
	st.act(1, func() error { return errors.New("own failure") })
	holder := st.hold(0)
	b.enqueue(t, b.job(0))
	within(t, patience, "the holder", holder.entered)
	id := b.park(t, 1)[0]
	holder.open()
	poll.Eventually(t, "the wake-up on its way", func() bool { return calls.Load() > 0 })
	// The task comes by itself, and the lock is reserved for it.
	if err := b.inspector.RunTask(b.queue, id); err != nil {
		t.Fatal(err)
	}
	st.wantOrder(0, 1)
	info := b.awaitState(t, id, asynq.TaskStateRetry)
	close(late)
	poll.Eventually(t, "the wake-up to arrive", func() bool { return calls.Load() == 0 })
	have := b.awaitState(t, id, asynq.TaskStateRetry)
	if have.Retried != 1 || !have.NextProcessAt.Equal(info.NextProcessAt) || have.LastErr != "own failure" {
		t.Errorf("want it left in its back-off, have %+v", have)
	}
	st.wantOrder(0, 1)
}
