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
	"github.com/sidingq/siding/queue"
)

// Without Wrap the guard refuses to run guarded tasks, and says so. Where the
// hook is, the refusal charges nothing and archives nothing either.
func TestUnwrapped(t *testing.T) {
	t.Parallel()
	b, st, logs := setup(t), newStage(t), newLogs(t)
	p := &plain{unwrapped: true, guardConfig: queue.GuardConfig{Logger: logs.logger}}
	p.serve(t, b, st)
	for _, retries := range []int{queue.NoRetries, 3} {
		id := b.enqueue(t, b.job(1), queue.Options{Retries: retries})
		info := b.awaitState(t, id, asynq.TaskStateRetry)
		if info.Retried != 0 || info.MaxRetry != max(retries, 0) || !strings.Contains(info.LastErr, "Guard.Wrap") {
			t.Errorf("want it back uncharged with the reason, have %+v", info)
		}
		if have := logs.lines("task_id="+id, slog.LevelError); len(have) != 1 {
			t.Errorf("want it logged, have %q", have)
		}
		b.soonFree(t, b.resource) // or the next would wait in line
	}
	if info := b.stats(t); info.Failed != 0 || info.Processed != 0 {
		t.Errorf("want nothing counted, have %+v", info)
	}
	if have := st.order(); len(have) != 0 {
		t.Errorf("want no run, have %v", have)
	}
}

// A server that was wrapped by another guard is not wired either.
func TestWrappedByAnotherGuard(t *testing.T) {
	t.Parallel()
	b, st := setup(t), newStage(t)
	other, err := queue.NewGuard(b.rdb, queue.GuardConfig{})
	if err != nil {
		t.Fatal(err)
	}
	p := &plain{unwrapped: true, config: other.Wrap(asynq.Config{})}
	p.serve(t, b, st)
	info := b.awaitState(t, b.enqueue(t, b.job(1)), asynq.TaskStateRetry)
	if info.Retried != 0 || !strings.Contains(info.LastErr, "Guard.Wrap") || len(st.order()) != 0 {
		t.Errorf("want it refused, have %+v", info)
	}
}

// Tasks without a resource need no guard, and no wiring.
func TestUnguardedTaskPassesThrough(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ran := make(chan string, 1)
	p := &plain{unwrapped: true, unhooked: true}
	p.start(t, b, func(_ context.Context, task *asynq.Task) error {
		ran <- task.Type()
		return nil
	})
	t.Cleanup(func() { p.stop(t) })
	b.enqueue(t, note{})
	if have := within(t, patience, "a run", ran); have != "test:note" {
		t.Errorf("want test:note, have %s", have)
	}
}

// Without Conn waiting tasks are found by their timers alone, and one on its
// last attempt waits in its worker, as asynq would archive it.
func TestUnhooked(t *testing.T) {
	t.Parallel()
	b, st, logs := setup(t), newStage(t), newLogs(t)
	p := &plain{unhooked: true, guardConfig: queue.GuardConfig{Logger: logs.logger}}
	p.serve(t, b, st)
	holder := st.hold(0)
	b.enqueue(t, b.job(0))
	within(t, patience, "the holder", holder.entered)
	last := b.enqueue(t, b.job(1), queue.Options{Retries: queue.NoRetries})
	timed := b.enqueue(t, b.job(2), queue.Options{Retries: 1})
	info := b.awaitState(t, timed, asynq.TaskStateRetry)
	if info.Retried != 0 || !strings.HasPrefix(info.LastErr, "waiting for "+b.resource) {
		t.Errorf("want it parked uncharged, have %+v", info)
	}
	poll.Eventually(t, "a warning", func() bool { return len(logs.lines("waits in its worker", slog.LevelWarn)) == 1 })
	steadily(t, 2500*time.Millisecond, "the last attempt in its worker", func() bool { return b.state(last) == asynq.TaskStateActive })
	b.wantLine(t)
	if info := b.stats(t); info.Failed != 0 || info.Archived != 0 {
		t.Errorf("want nothing counted, have %+v", info)
	}
	holder.open()
	b.awaitGone(t, last, timed)
	if have := logs.lines("waits in its worker"); len(have) != 1 {
		t.Errorf("want one warning, have %q", have)
	}
	if info := b.stats(t); info.Failed != 0 || info.Processed != 3 {
		t.Errorf("want 3 processed, none failed, have %+v", info)
	}
}

// A last attempt that waits in its worker is put back by a shutdown.
func TestUnhookedShutdown(t *testing.T) {
	t.Parallel()
	b, st, logs := setup(t), newStage(t), newLogs(t)
	b.take(t, lock.Config{})
	p := &plain{unhooked: true, guardConfig: queue.GuardConfig{Logger: logs.logger}}
	p.serve(t, b, st)
	last := b.enqueue(t, b.job(1), queue.Options{Retries: queue.NoRetries})
	poll.Eventually(t, "a warning", func() bool { return len(logs.lines("waits in its worker")) == 1 })
	p.stop(t)
	if have := b.state(last); have != asynq.TaskStatePending {
		t.Errorf("want it pending, have %v", have)
	}
}

// A lost lease archives no task that has retries left, also without Conn.
func TestUnhookedLeaseLost(t *testing.T) {
	t.Parallel()
	b, st := setup(t), newStage(t)
	(&plain{unhooked: true}).serve(t, b, st)
	holder := st.hold(0)
	st.act(0, func() error { return queue.Permanent(errors.New("own failure")) })
	id := b.enqueue(t, b.job(0), queue.Options{Retries: 1})
	within(t, patience, "the holder", holder.entered)
	b.takenFrom(t)
	holder.open()
	if info := b.awaitState(t, id, asynq.TaskStateRetry); info.Retried != 0 || !strings.HasPrefix(info.LastErr, "lost "+b.resource) {
		t.Errorf("want it sent back uncharged, have %+v", info)
	}
	b.awaitState(t, id, asynq.TaskStateArchived) // the second run's own failure
}

// What a team has set in its asynq.Config still holds, for what is its own.
func TestWrapKeepsTheConfig(t *testing.T) {
	t.Parallel()
	type key struct{}
	b := setup(t)
	harmless := errors.New("harmless")
	reported := make(chan error, 10)
	p := &plain{config: asynq.Config{
		BaseContext:    func() context.Context { return context.WithValue(context.Background(), key{}, "base") },
		IsFailure:      func(err error) bool { return !errors.Is(err, harmless) },
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Hour },
		ErrorHandler:   asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) { reported <- err }),
	}}
	p.start(t, b, func(ctx context.Context, _ *asynq.Task) error {
		if ctx.Value(key{}) != "base" {
			t.Error("want the base context's value")
		}
		return harmless
	})
	t.Cleanup(func() { p.stop(t) })
	info := b.awaitState(t, b.enqueue(t, b.job(0)), asynq.TaskStateRetry)
	if info.Retried != 0 || time.Until(info.NextProcessAt) < 50*time.Minute {
		t.Errorf("want it uncharged and an hour away, have %+v", info)
	}
	if err := within(t, patience, "a report", reported); !errors.Is(err, harmless) {
		t.Errorf("want %v, have %v", harmless, err)
	}
}

// A task whose resource cannot be named is archived at once: no retry mends it.
func TestBadResource(t *testing.T) {
	t.Parallel()
	b, st := setup(t), newStage(t)
	(&plain{guardConfig: queue.GuardConfig{Resources: resources()}}).serve(t, b, st)
	client := asynq.NewClientFromRedisClient(b.rdb)
	for name, tt := range map[string]struct {
		task *asynq.Task
		want string
	}{
		"empty":         {plainTask(t, job{}), "it is empty"},
		"braces":        {plainTask(t, job{Res: "order:{1}"}), "braces"},
		"oversized":     {plainTask(t, job{Res: strings.Repeat("x", lock.MaxResource+1)}), "at most 512 bytes, have 513"},
		"control":       {plainTask(t, job{Res: "order:\n1"}), "control character"},
		"malformed":     {asynq.NewTask("test:job", []byte(`{"res":`)), "unexpected end of JSON"},
		"header, empty": {asynq.NewTaskWithHeaders("test:other", plainTask(t, b.job(1)).Payload(), map[string]string{queue.HeaderResource: ""}), "it is empty"},
	} {
		info, err := client.EnqueueContext(t.Context(), tt.task, asynq.Queue(b.queue), asynq.MaxRetry(5))
		if err != nil {
			t.Fatal(err)
		}
		have := b.awaitState(t, info.ID, asynq.TaskStateArchived)
		if !strings.HasPrefix(have.LastErr, tt.task.Type()+": resource: ") || !strings.Contains(have.LastErr, tt.want) {
			t.Errorf("%s: want an error with %q, have %q", name, tt.want, have.LastErr)
		}
	}
	if have := st.order(); len(have) != 0 {
		t.Errorf("want no run, have %v", have)
	}
}

func TestNewGuardRefuses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for want, cfg := range map[string]queue.GuardConfig{
		"queue: overrun: want more than 0, have -1s": {Overrun: -time.Second},
		"lock: ttl: ": {Lock: lock.Config{TTL: time.Millisecond}},
	} {
		if _, err := queue.NewGuard(b.rdb, cfg); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("want %q, have %v", want, err)
		}
	}
}
