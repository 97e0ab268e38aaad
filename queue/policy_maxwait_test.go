package queue_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/queue"
)

// A task whose worker waits for it ends at its MaxWait, however long the worker might wait.
func TestMaxWaitAtWork(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st, j := newStage(t), &journal{}
		b.serve(t, queue.ServerConfig{Guard: queue.GuardConfig{Observe: j.observe}}, st.run)
		g := b.occupy(t, st)
		id := b.enqueue(t, b.job(1), queue.Options{Policy: &queue.Policy{OnBusy: queue.OnBusyWait, Wait: time.Minute, MaxWait: time.Second}})
		if e := j.await(t, queue.EventWaitedTooLong, id, 1); e.Waited < time.Second || e.Waited > patience {
			t.Errorf("want it to have waited for a second, have %v", e.Waited)
		}
		b.awaitState(t, id, asynq.TaskStateArchived)
		g.open()
		b.awaitGone(t, b.enqueue(t, b.job(2))) // the lock is free
		st.wantOrder(0, 2)
	})
}

// A task whose worker gets the lock after its MaxWait does not run.
func TestMaxWaitIsOverWithTheLock(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st, j := newStage(t), &journal{}
		var asks atomic.Int32
		var counting atomic.Bool
		asked, over := make(chan struct{}), make(chan struct{})
		p := &plain{guardConfig: queue.GuardConfig{Observe: j.observe}, onLocks: func(_ context.Context, cmd redis.Cmder, send func() error) error {
			err := send()
			if err == nil && counting.Load() && isAcquire(cmd) && asks.Add(1) == 1 {
				close(asked)
				<-over
			}
			return err
		}}
		p.serve(t, b, st)
		g := b.occupy(t, st)
		counting.Store(true)
		id := b.enqueue(t, b.job(1), queue.Options{Policy: &queue.Policy{OnBusy: queue.OnBusyWait, Wait: time.Minute, MaxWait: time.Second}})
		within(t, patience, "it asks", asked)
		start := time.Now()
		poll.Eventually(t, "its MaxWait over", func() bool { return time.Since(start) > time.Second })
		close(over)
		poll.Eventually(t, "its worker waits", func() bool { return asks.Load() > 1 })
		g.open()
		j.await(t, queue.EventWaitedTooLong, id, 1)
		b.awaitState(t, id, asynq.TaskStateArchived)
		b.awaitGone(t, b.enqueue(t, b.job(2))) // the lock is free
		st.wantOrder(0, 2)
	})
}

// A task that is one too many is rejected before its worker waits.
func TestMaxWaitingAtWork(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st, j := newStage(t), &journal{}
		b.serve(t, queue.ServerConfig{Guard: queue.GuardConfig{Observe: j.observe}}, st.run)
		g := b.occupy(t, st)
		wait := queue.Options{Policy: &queue.Policy{OnBusy: queue.OnBusyWait, Wait: time.Minute, MaxWaiting: 1}}
		first := b.enqueue(t, b.job(1), wait)
		poll.Eventually(t, "its worker waits", func() bool {
			waiters := b.waiters(t)
			return len(waiters) == 1 && waiters[0] != first
		})
		second := b.enqueue(t, b.job(2), wait)
		b.awaitState(t, second, asynq.TaskStateArchived)
		if state := b.state(first); state != asynq.TaskStateActive {
			t.Errorf("want the first at its worker, have it %v", state)
		}
		g.open()
		b.awaitGone(t, first)
		st.wantOrder(0, 1)
		if n := len(j.of(queue.EventParked, first)); n != 0 {
			t.Errorf("want it never parked, have %d times", n)
		}
	})
}

// A task whose worker has waited is not one too many because that worker has not left the wait queue yet.
func TestMaxWaitingCountsNoOwnWorker(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st := newStage(t)
		leaves, settled := make(chan struct{}), make(chan struct{})
		var once sync.Once
		p := &plain{onLocks: func(_ context.Context, cmd redis.Cmder, send func() error) error {
			args := cmd.Args()
			waiter := slices.IndexFunc(args, func(arg any) bool { return strings.HasPrefix(fmt.Sprint(arg), "siding-goroutine:") })
			if waiter > 0 && fmt.Sprint(args[2]) == strconv.Itoa(waiter-3) { // a call leaves if the waiter follows the keys
				once.Do(func() { close(leaves) })
				<-settled
			}
			return send()
		}}
		p.serve(t, b, st)
		wait := func(d time.Duration) queue.Options {
			return queue.Options{Policy: &queue.Policy{OnBusy: queue.OnBusyWait, Wait: d, MaxWaiting: 1}}
		}
		g := b.occupy(t, st)
		served := b.enqueue(t, b.job(2), wait(time.Minute))
		poll.Eventually(t, "a worker waits, so its process listens", func() bool {
			waiters := b.waiters(t)
			return len(waiters) == 1 && waiters[0] != served
		})
		g.open()
		b.awaitEnd(t, served)
		g = b.occupy(t, st)
		id := b.enqueue(t, b.job(1), wait(time.Second))
		var state asynq.TaskState
		poll.Eventually(t, "it settled", func() bool {
			state = b.state(id)
			return state == asynq.TaskStateRetry || state == asynq.TaskStateArchived
		})
		within(t, patience, "its worker about to leave", leaves)
		close(settled)
		if state != asynq.TaskStateRetry {
			t.Fatalf("want it parked, have it %v", state)
		}
		g.open()
		b.awaitEnd(t, id)
	})
}

// A task takes over the time of the one that it replaces, and comes by itself when its MaxWait is over. It
// does not take over a time that is longer ago than its MaxWait: then it would never run.
func TestMaxWaitOfAReplacedTask(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ maxWait, ago, left time.Duration }{
		"not over": {time.Hour, 50 * time.Minute, 10 * time.Minute}, "over": {time.Minute, 2 * time.Minute, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBothPaths(t, func(t *testing.T, b *bundle) {
				t.Helper()
				st, j := newStage(t), &journal{}
				b.serve(t, queue.ServerConfig{
					Asynq: asynq.Config{DelayedTaskCheckInterval: time.Hour},
					Guard: queue.GuardConfig{Observe: j.observe},
				}, st.run)
				g := b.occupy(t, st)
				replace := queue.Options{Policy: &queue.Policy{OnBusy: queue.OnBusyReplace, MaxWait: tt.maxWait}}
				old := b.enqueueWaiter(t, 1, 1, replace)
				b.backdate(t, old, tt.ago)
				id := b.enqueue(t, b.job(2), replace)
				j.await(t, queue.EventReplaced, old, 1)
				left := time.Until(b.awaitState(t, id, asynq.TaskStateRetry).NextProcessAt)
				if left < tt.left-30*time.Second || left > tt.left+5*time.Second {
					t.Errorf("want it to come in %v, have %v", tt.left, left)
				}
				b.wantWaiters(t, id)
				g.open()
				b.awaitEnd(t, id)
				st.wantOrder(0, 2)
			})
		})
	}
}
