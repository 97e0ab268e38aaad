package queue_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/queue"
)

var errFull = errors.New("disk is full")

// While something is missing that all tasks need, no task uses a retry, and few are taken. Once
// that is there again, all tasks succeed.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		t.Helper()
		const tasks = 60
		var runs, asked atomic.Int64
		var full atomic.Bool
		full.Store(true)
		logs := newLogs(t)
		s := b.newServer(t, queue.ServerConfig{Logger: logs.logger, Available: func(context.Context) error {
			asked.Add(1)
			if full.Load() {
				return errFull
			}
			return nil
		}})
		work := func() error {
			runs.Add(1)
			if full.Load() {
				// Permanent does not archive a task that is not to blame.
				return queue.Unavailable(queue.Permanent(fmt.Errorf("write: %w", errFull)))
			}
			return nil
		}
		queue.Handle(s, func(context.Context, job) error { return work() })
		queue.Handle(s, func(context.Context, note) error { return work() })
		ids := make([]string, tasks)
		for i := range ids {
			opts := queue.Options{Retention: time.Hour, Retries: queue.NoRetries}
			if i%3 == 0 {
				ids[i] = b.enqueue(t, note{}, opts)
			} else {
				ids[i] = b.enqueue(t, job{Res: fmt.Sprint(b.resource, i%10)}, opts)
			}
		}
		start(t, s)
		// Several steps go by, in each of which all tasks could have been taken.
		poll.Eventually(t, "three looks", func() bool { return asked.Load() >= 3 })
		// When the first task failed, each of 20 workers had a task under way. The server was about
		// to take a few more.
		if have := runs.Load(); have == 0 || have > tasks-10 {
			t.Errorf("want no tasks taken after the first ones, have %d runs", have)
		}
		wantReady(t, s, "disk is full")
		if have := b.stats(t); have.Archived+have.Completed > 0 {
			t.Errorf("want no task ended, have %+v", have)
		}
		full.Store(false)
		for _, id := range ids {
			if info := b.awaitState(t, id, asynq.TaskStateCompleted); info.Retried != 0 {
				t.Errorf("task %s: want no retry used, have %d retries", id, info.Retried)
			}
		}
		wantReady(t, s, "")
		for _, want := range []string{"no tasks are taken", "tasks are taken again"} {
			if have := logs.lines(want); len(have) != 1 {
				t.Errorf("want one line with %q in the log, have %q", want, have)
			}
		}
	})
}

// Without an Available, tasks are tried again after a second.
func TestUnavailableForOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var runs atomic.Int64
	b.serve(t, queue.ServerConfig{}, func(context.Context, job) error {
		if runs.Add(1) == 1 {
			return queue.Unavailable(errFull)
		}
		return nil
	})
	id := b.enqueue(t, b.job(1), queue.Options{Retention: time.Hour, Retries: queue.NoRetries})
	if info := b.awaitState(t, id, asynq.TaskStateCompleted); info.Retried != 0 || runs.Load() != 2 {
		t.Errorf("want a second run that uses no retry, have %d runs and %d retries", runs.Load(), info.Retried)
	}
	if queue.Unavailable(nil) != nil {
		t.Error("want nil of nil")
	}
}

// A server that takes no tasks shuts down as any other.
func TestShutdownWhileUnavailable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	queues := map[string]int{b.queue: 1}
	for n := range 100 {
		queues[fmt.Sprintf("%s.%d", b.queue, n)] = 1
	}
	s := b.serve(t, queue.ServerConfig{
		Asynq:     asynq.Config{Queues: queues},
		Available: func(context.Context) error { return errFull },
	}, func(context.Context, job) error { return queue.Unavailable(errFull) })
	b.enqueue(t, b.job(1))
	wantReady(t, s, "no tasks are taken")
	begin := time.Now()
	shutdown(t, s)
	if took := time.Since(begin); took > 50*time.Second {
		t.Errorf("want one of 100 queues held back, have the shutdown take %v", took)
	}
	if have := b.stats(t); have.Size != 1 || have.Active != 0 {
		t.Errorf("want the task in its place again, have %+v", have)
	}
}
