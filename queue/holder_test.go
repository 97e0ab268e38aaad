package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/queue"
)

// A zombie: the time of a handler is over, but it goes on. The task stays at work, and its lock is
// renewed, until the handler has returned; all others wait. What it returns then counts.
func TestZombieKeepsTheLock(t *testing.T) {
	t.Parallel()
	type row struct {
		result  error
		state   asynq.TaskState // of a task with retries; 0 for gone
		retried int
	}
	eachOf(t, onOne, map[string]row{
		"nil":      {nil, 0, 0},
		"an error": {errors.New("out of stock"), asynq.TaskStateRetry, 1},
	}, func(b *bundle, tt row) {
		cfg := lock.Config{TTL: 5 * time.Second} // the machine may stand still for a while
		b.serve(queue.ServerConfig{Lock: cfg}, b.run)
		b.act(0, func() error { return tt.result })
		zombie, id := b.begin(0, queue.Options{Timeout: time.Second})
		held := b.value()
		next := b.park(1)
		within(b, patience, "the end of its time", zombie.ended)
		steadily(b, cfg.TTL+time.Second, "the lock with the zombie", func() bool { return b.value() == held && b.state(id) == asynq.TaskStateActive })
		b.wantOrder(0)
		zombie.open()
		b.awaitGone(next...)
		b.wantOrder(0, 1)
		if tt.state == 0 {
			b.awaitGone(id)
		} else if info := b.awaitState(id, tt.state); info.Retried != tt.retried || !strings.HasPrefix(info.LastErr, "out of stock") {
			b.Errorf("want %d retries used, and its error, have %+v", tt.retried, info)
		}
	})
}

// A handler that ignores its ended context for longer than the limit is reported, whether its time is over, or an operator has
// canceled it. Its lock is no longer renewed, so that the resource is not held for ever. The reservation of a task on an
// external store ends in the same way.
func TestOverrun(t *testing.T) {
	t.Parallel()
	type row struct {
		elsewhere bool // its lock is in another store
		canceled  bool
	}
	eachOf(t, onOne, map[string]row{
		"own lock": {}, "another store": {elsewhere: true},
		"own lock, canceled": {canceled: true}, "another store, canceled": {elsewhere: true, canceled: true},
	}, func(b *bundle, tt row) {
		logs := newLogs(b)
		b.unsafe = true // the server gives the zombie up
		p := &plain{guardConfig: queue.ServerConfig{Lock: lock.Config{TTL: time.Second}}}
		timeout := time.Second
		if tt.elsewhere {
			p.guardConfig.Store = locktest.NewMemory()
		}
		if tt.canceled {
			timeout = time.Hour
		}
		p.config.Concurrency = 1 // its slot is free
		p.guardConfig.Overrun, p.guardConfig.Logger, p.guardConfig.Observe = 300*time.Millisecond, logs.logger, b.observe
		p.serve(b)
		zombie, id := b.begin(0, queue.Options{Timeout: timeout})
		expect.Eventually(b, "the end of its context", func() bool {
			if tt.canceled {
				expect.OK(b, b.inspector.CancelProcessing(id)) // time and again, as the server may not listen yet
			}
			return isClosed(zombie.ended)
		})
		expect.Eventually(b, "a report", func() bool { return len(logs.lines("goes on after its time is over", slog.LevelError)) == 1 })
		b.awaitGone(b.enqueue(b.job(1)))
		b.awaitGone(id) // as one whose worker has died, it runs again
		zombie.open()
		b.await(queue.EventLost, id, 1)
	})
}

// takenFrom deletes the lock of the resource, an operator's slip, and somebody else has it
// for a moment.
func (b *bundle) takenFrom() {
	b.Helper()
	expect.OK(b, b.rdb.Del(b.Context(), b.lockKey()).Err())
	lease := b.acquire(nil)
	expect.OK(b, lease.Release(b.Context()))
}

// If the lease was lost before the handler returned, the task has neither succeeded nor failed,
// whatever the handler returned.
func TestLeaseLost(t *testing.T) {
	t.Parallel()
	eachOf(t, onOne, map[string]error{
		"nil":       nil,
		"an error":  errors.New("own failure"),
		"permanent": queue.Permanent(errors.New("own failure")),
		"revoked":   asynq.RevokeTask,
	}, func(b *bundle, result error) {
		b.serve(queue.ServerConfig{Observe: b.observe}, b.run)
		b.failOnce(0, result)
		holder, id := b.begin(0, queue.Options{Retries: queue.NoRetries})
		b.takenFrom()
		holder.open()
		e := b.await(queue.EventLost, id, 1)
		expect.That(b, errors.Is(e.Err, result), "event: want the handler's error, have %v", e.Err)
		b.awaitGone(id)
		b.wantOrder(0, 0)
		b.wantCounts(1, 0)
		b.await(queue.EventReleased, id, 1)      // the event may come a moment after the task is gone
		b.wantEvents(queue.EventReleased, id, 1) // the second run's
	})
}

// A resource may have braces. Goroutines and tasks meet at its lock like at any other, in their order.
func TestResourceWithBraces(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.resource = "user:{" + b.resource + "}:cart"
	b.serve(queue.ServerConfig{}, b.run)
	held := b.acquire(nil)
	ids := b.park(1, 2)
	expect.OK(t, held.Release(t.Context()))
	b.awaitGone(ids...)
	b.wantOrder(1, 2)
}

// A task that loses its lock each time it runs comes to an end. At first its losses are tolerated, with
// a longer wait each time. Then they use retries, and the task is archived after its last.
func TestLossesAreToleratedUpToALimit(t *testing.T) {
	t.Parallel()
	b, logs := setup(t), newLogs(t)
	b.serve(queue.ServerConfig{Recovery: queue.Recovery{Losses: 2}, Observe: b.observe, Logger: logs.logger}, func(ctx context.Context, j job) error {
		if err := b.run(ctx, j); err != nil {
			return err
		}
		return fmt.Errorf("write: %w", lock.ErrStale)
	})
	id := b.enqueue(b.job(1), queue.Options{Retries: queue.NoRetries})
	info := b.awaitState(id, asynq.TaskStateArchived)
	b.wantOrder(1, 1, 1)
	expect.Equal(t, "reason", info.LastErr, "write: "+lock.ErrStale.Error())
	b.wantEvents(queue.EventLost, id, 3) // told once Redis has answered
	refused := logs.lines("a write of the task was refused, as somebody has held its lock since", slog.LevelWarn)
	expect.That(t, len(refused) == 3, "want three lines in the log that say why, have %q", refused)
}

// A handler that finds a second lock busy, and says so, has not failed.
func TestSecondLockIsBusy(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bundle) {
		second := b.resource + ".second"
		lease := expect.Value(b.locker.Acquire(b.Context(), second, nil))(b)
		b.serveWithLocker(queue.ServerConfig{Observe: b.observe}, func(ctx context.Context, locker *lock.Locker, j job) error {
			return locker.Do(ctx, second, nil, func(ctx context.Context) error { return b.run(ctx, j) })
		})
		id := b.enqueue(b.job(1), queue.Options{Retries: queue.NoRetries})
		expect.Is(b, "why it comes again", b.await(queue.EventReleased, id, 3).Err, lock.ErrBusy)
		expect.Equal(b, "how often its own resource was busy", len(b.of(queue.EventParked, id)), 0)
		info := b.awaitState(id, asynq.TaskStateRetry)
		expect.That(b, strings.Contains(info.LastErr, second) && info.Retried == 0, "want no retry used, and a reason with %s, have %+v", second, info)
		b.soonFree(b.resource) // it does not keep the first meanwhile
		expect.OK(b, lease.Release(b.Context()))
		b.awaitGone(id)
		b.wantOrder(1)
	})
}
