package queue_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/queue"
)

// G4: a holder that was killed renews no more. Its lock expires, and the first who waits runs soon after
// that.
func TestHolderKilled(t *testing.T) {
	t.Parallel()
	b, st := setup(t), newStage(t)
	cfg := lock.Config{TTL: 6 * time.Second}
	b.serve(t, queue.ServerConfig{Lock: cfg}, st.run)
	locker, err := lock.New(lock.Redis(b.rdb), cfg)
	must(t, err)
	start := time.Now()
	if _, err := locker.Acquire(t.Context(), b.resource, &lock.Options{NoRenew: true}); err != nil {
		t.Fatal(err)
	}
	ids := b.park(t, 1, 2)
	end := time.Now().Add(b.rdb.PTTL(t.Context(), b.lockKey()).Val())
	st.awaitRuns(1)
	if took := time.Since(start); took < cfg.TTL {
		t.Errorf("want it to run when the lock has run out, have %v", took)
	}
	if late := time.Since(end); late > promised(2*time.Second) {
		t.Errorf("want it to run within 2 s of the lock's end, have %v", late)
	}
	b.awaitGone(t, ids...)
	st.wantOrder(1, 2)
}

// A zombie: the time of a handler is over, but it goes on. The task stays at work, and its lock is
// renewed, until the handler has returned; all others wait. What it returns then counts.
func TestZombieKeepsTheLock(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		result  error
		state   asynq.TaskState // of a task with retries; 0 for gone
		retried int
	}{
		"nil":       {nil, 0, 0},
		"an error":  {errors.New("out of stock"), asynq.TaskStateRetry, 1},
		"permanent": {queue.Permanent(errors.New("out of stock")), asynq.TaskStateArchived, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, st := setup(t), newStage(t)
			cfg := lock.Config{TTL: 2 * time.Second}
			b.serve(t, queue.ServerConfig{Lock: cfg}, st.run)
			zombie := st.hold(0)
			st.act(0, func() error { return tt.result })
			id := b.enqueue(t, b.job(0), queue.Options{Timeout: time.Second})
			within(t, patience, "the holder", zombie.entered)
			held := b.value(t)
			next := b.park(t, 1)
			within(t, patience, "the end of its time", zombie.ended)
			steadily(t, cfg.TTL+time.Second, "the lock with the zombie", func() bool { return b.value(t) == held && b.state(id) == asynq.TaskStateActive })
			st.wantOrder(0)
			zombie.open()
			b.awaitGone(t, next...)
			st.wantOrder(0, 1)
			if tt.state == 0 {
				b.awaitGone(t, id)
			} else if info := b.awaitState(t, id, tt.state); info.Retried != tt.retried || !strings.HasPrefix(info.LastErr, "out of stock") {
				t.Errorf("want %d retries used, and its error, have %+v", tt.retried, info)
			}
		})
	}
}

// A handler that ignores its ended context for longer than the limit is reported. Its lock is no
// longer renewed, so that the resource is not held for ever. The reservation of a task on an
// external store ends in the same way.
func TestOverrun(t *testing.T) {
	t.Parallel()
	cfg := lock.Config{TTL: time.Second}
	for name, locks := range map[string]func() queue.ServerConfig{
		"own lock":     func() queue.ServerConfig { return queue.ServerConfig{Lock: cfg} },
		"given locker": func() queue.ServerConfig { return queue.ServerConfig{Store: locktest.NewMemory(), Lock: cfg} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, st, logs, j := setup(t), newStage(t), newLogs(t), &journal{}
			st.unsafe = true // the server gives the zombie up
			p := &plain{guardConfig: locks()}
			p.config.Concurrency = 1 // its slot is free
			p.guardConfig.Overrun, p.guardConfig.Logger, p.guardConfig.Observe = 300*time.Millisecond, logs.logger, j.observe
			p.serve(t, b, st)
			zombie, id := b.begin(t, st, 0, queue.Options{Timeout: time.Second})
			poll.Eventually(t, "a report", func() bool { return len(logs.lines("goes on after its time is over", slog.LevelError)) == 1 })
			b.awaitGone(t, b.enqueue(t, b.job(1)))
			b.awaitGone(t, id) // as one whose worker has died, it runs again
			zombie.open()
			j.await(t, queue.EventLost, id, 1)
		})
	}
}

// takenFrom deletes the lock of the resource, an operator's slip, and somebody else has it
// for a moment.
func (b *bundle) takenFrom(t *testing.T) {
	t.Helper()
	must(t, b.rdb.Del(t.Context(), b.lockKey()).Err())
	lease := b.acquire(t, nil)
	must(t, lease.Release(t.Context()))
}

// If the lease was lost before the handler returned, the task has neither succeeded nor failed,
// whatever the handler returned.
func TestLeaseLost(t *testing.T) {
	t.Parallel()
	for name, result := range map[string]error{
		"nil":       nil,
		"an error":  errors.New("own failure"),
		"permanent": queue.Permanent(errors.New("own failure")),
		"revoked":   asynq.RevokeTask,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, st, j := setup(t), newStage(t), &journal{}
			b.serve(t, queue.ServerConfig{Observe: j.observe}, st.run)
			holder := st.hold(0)
			outcome := result
			st.act(0, func() error {
				err := outcome
				outcome = nil
				return err
			})
			id := b.enqueue(t, b.job(0), queue.Options{Retries: queue.NoRetries})
			within(t, patience, "the holder", holder.entered)
			b.takenFrom(t)
			holder.open()
			if e := j.await(t, queue.EventLost, id, 1); !errors.Is(e.Err, result) {
				t.Errorf("event: want the handler's error, have %v", e.Err)
			}
			b.awaitGone(t, id)
			st.wantOrder(0, 0)
			if info := b.stats(t); info.Failed != 0 || info.Processed != 1 || info.Archived != 0 {
				t.Errorf("want 1 processed, none failed, have %+v", info)
			}
			j.await(t, queue.EventReleased, id, 1) // the event may come a moment after the task is gone
			if have := j.of(queue.EventReleased, id); len(have) != 1 {
				t.Errorf("released: want the second run's, have %+v", have)
			}
		})
	}
}

// G6: a holder that lost its lock is told: its context ends with the cause. A lock that another has
// taken meanwhile is left as it is.
func TestHolderIsToldOfItsLoss(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cause := make(chan error, 1)
	started := make(chan struct{})
	b.serve(t, queue.ServerConfig{Lock: lock.Config{TTL: time.Second}}, func(ctx context.Context, j job) error {
		if j.N == 0 {
			close(started)
			<-ctx.Done()
			cause <- context.Cause(ctx)
		}
		return ctx.Err()
	})
	b.enqueue(t, b.job(0), queue.Options{Retries: queue.NoRetries})
	within(t, patience, "the holder", started)
	must(t, b.rdb.Set(t.Context(), b.lockKey(), "somebody else", time.Minute).Err())
	if err := within(t, prompt, "the context to end", cause); !errors.Is(err, lock.ErrLost) {
		t.Errorf("cause: want ErrLost, have %v", err)
	}
	poll.Eventually(t, "the task parked", func() bool { return b.stats(t).Retry == 1 })
	if v := b.value(t); v != "somebody else" {
		t.Errorf("lock: want it untouched, have %q", v)
	}
}

// Two attempts of one task are two holders. Each attempt has its own token, so the first cannot
// touch the second's lock.
func TestReleaseIsByTokenNotByTask(t *testing.T) {
	t.Parallel()
	b, st := setup(t), newStage(t)
	st.unsafe = true
	b.serve(t, queue.ServerConfig{Lock: lock.Config{TTL: 2 * time.Second}}, st.run)
	first, id := b.begin(t, st, 0)
	second := st.hold(0)
	must(t, b.rdb.Del(t.Context(), b.lockKey()).Err())
	within(t, patience, "it to learn of its loss", first.ended)
	within(t, patience, "the second attempt", second.entered)
	held := b.value(t)
	first.open()
	steadily(t, 300*time.Millisecond, "the lock with the second attempt", func() bool { return b.value(t) == held && b.state(id) == asynq.TaskStateActive })
	second.open()
	b.awaitGone(t, id)
	st.wantOrder(0, 0)
}

// A resource may have braces. Goroutines and tasks meet at its lock like at any other, in their order.
func TestResourceWithBraces(t *testing.T) {
	t.Parallel()
	b, st := setup(t), newStage(t)
	b.resource = "user:{" + b.resource + "}:cart"
	b.serve(t, queue.ServerConfig{}, st.run)
	held := b.acquire(t, nil)
	ids := b.park(t, 1, 2)
	must(t, held.Release(t.Context()))
	b.awaitGone(t, ids...)
	st.wantOrder(1, 2)
}
