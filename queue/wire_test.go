package queue_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// wantRefused enqueues a task with retries and one without. A server that lacks a part of the guard
// must not run them, use a retry or archive them. The log must name what is missing.
func (b *bundle) wantRefused(t *testing.T, st *stage, p *plain, missing string) {
	t.Helper()
	logs := newLogs(t)
	p.guardConfig.Logger = logs.logger
	p.serve(t, b, st)
	ids := []string{b.enqueue(t, b.job(1), queue.Options{Retries: 3}), b.enqueue(t, b.job(2), queue.Options{Retries: queue.NoRetries})}
	poll.Eventually(t, "what is missing to be named", func() bool { return len(logs.lines(missing)) > 0 })
	steadily(t, time.Second, "no retry used and no task archived", func() bool {
		info := b.stats(t)
		return info.Failed == 0 && info.Processed == 0 && info.Archived == 0 && info.Size == len(ids)
	})
	p.stop(t)
	for _, id := range ids {
		info, err := b.inspector.GetTaskInfo(b.queue, id)
		if err != nil {
			t.Fatal(err)
		}
		if info.State == asynq.TaskStateActive || info.State == asynq.TaskStateArchived || info.Retried != 0 {
			t.Errorf("want it left or requeued, and no retry used, have %+v", info)
		}
	}
	if have := st.order(); len(have) != 0 {
		t.Errorf("want no run, have %v", have)
	}
}

// A server without Middleware runs its first tasks unguarded: asynq alone knows its handler. Once a guarded
// one is done it takes no more, and says why.
func TestNoMiddleware(t *testing.T) {
	t.Parallel()
	b, st, logs := setup(t), unfencedStage(t), newLogs(t)
	p := &plain{unguarded: true, guardConfig: queue.GuardConfig{Logger: logs.logger}}
	p.start(t, b, func(ctx context.Context, task *asynq.Task) error {
		if task.Type() == (note{}).Kind() {
			return nil
		}
		return st.run(ctx, b.job(0))
	})
	t.Cleanup(func() { p.stop(t) })
	b.awaitGone(t, b.enqueue(t, note{}))
	b.awaitGone(t, b.enqueue(t, note{})) // after a task without a resource it takes others
	b.awaitGone(t, b.enqueue(t, b.job(0)))
	poll.Eventually(t, "the first guarded task to be named, before there is another", func() bool {
		return len(logs.lines("a guarded task has run without its lock", slog.LevelError)) == 1
	})
	later := b.enqueue(t, b.job(1))
	const missing = "did not pass through Guard.Middleware"
	poll.Eventually(t, "what is missing to be named", func() bool {
		if b.state(later) == 0 { // it was taken before the guard knew how the first one had ended
			later = b.enqueue(t, b.job(1))
		}
		return len(logs.lines("no tasks are taken", slog.LevelError)) > 0 && len(logs.lines(missing)) > 1
	})
	steadily(t, time.Second, "no task taken", func() bool { return b.state(later) == asynq.TaskStatePending })
}

// A hand-wired server that lacks a part, or has another guard's, runs no guarded task.
func TestWrongWiring(t *testing.T) {
	t.Parallel()
	another := func(t *testing.T, b *bundle) *queue.Guard {
		t.Helper()
		guard, err := queue.NewGuard(b.rdb, queue.GuardConfig{Logger: newLogs(t).logger})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = guard.Wait(context.Background()) })
		return guard
	}
	elsewhere := func(g *queue.Guard) { g.Wrap(asynq.Config{Queues: map[string]int{"elsewhere": 1}}) }
	for name, tt := range map[string]struct {
		make func(t *testing.T, b *bundle) *plain
		want string
	}{
		"neither Conn nor Wrap": {func(*testing.T, *bundle) *plain { return &plain{unhooked: true, unwrapped: true} }, "Guard.Conn, nor"},
		"no Conn":               {func(*testing.T, *bundle) *plain { return &plain{unhooked: true} }, "did not pass through Guard.Conn"},
		"no Wrap":               {func(*testing.T, *bundle) *plain { return &plain{unwrapped: true} }, "no asynq.Config through Guard.Wrap"},
		"no Wrap, but of another server": {func(*testing.T, *bundle) *plain {
			return &plain{unwrapped: true, made: elsewhere}
		}, "did not pass through Guard.Wrap"},
		"Wrap of another guard": {func(t *testing.T, b *bundle) *plain {
			t.Helper()
			return &plain{unwrapped: true, config: another(t, b).Wrap(asynq.Config{})}
		}, "no asynq.Config through Guard.Wrap"},
		"Wrap of another guard, two servers": {func(t *testing.T, b *bundle) *plain {
			t.Helper()
			return &plain{unwrapped: true, config: another(t, b).Wrap(asynq.Config{}), made: elsewhere}
		}, "Guard.Wrap of another guard"},
		"Conn of another guard": {func(t *testing.T, b *bundle) *plain {
			t.Helper()
			other := another(t, b)
			elsewhere(other)
			return &plain{unhooked: true, around: other.Conn}
		}, "did not pass through Guard.Conn"},
		"two guards on one connection": {func(t *testing.T, b *bundle) *plain {
			t.Helper()
			other := another(t, b)
			elsewhere(other)
			return &plain{around: other.Conn}
		}, "Guard.Conn twice"},
		"one guard, twice": {func(t *testing.T, _ *bundle) *plain {
			t.Helper()
			p := &plain{}
			p.around = func(opt asynq.RedisConnOpt) asynq.RedisConnOpt { return p.guard.Conn(opt) }
			return p
		}, "Guard.Conn twice"},
		"a guard on another database": {func(_ *testing.T, b *bundle) *plain {
			other := *b.opts
			other.DB = 5
			return &plain{locksOn: &other}
		}, "different Redis servers or databases"},
		"a redis.Ring": {func(_ *testing.T, b *bundle) *plain {
			return &plain{around: func(asynq.RedisConnOpt) asynq.RedisConnOpt {
				return connOf(func() any { return redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": b.opts.Addrs[0]}}) })
			}}
		}, "redis.Ring"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, st := setupFast(t), newStage(t)
			b.wantRefused(t, st, tt.make(t, b), tt.want)
		})
	}
	t.Run("a redis.Ring for a guard, and for a client", func(t *testing.T) {
		t.Parallel()
		spreads := redis.NewRing(&redis.RingOptions{})
		t.Cleanup(func() { _ = spreads.Close() })
		if _, err := queue.NewGuard(spreads, queue.GuardConfig{}); err == nil || !strings.Contains(err.Error(), "redis.Ring") {
			t.Errorf("guard: want it refused, have %v", err)
		}
		if _, err := queue.NewClient(spreads, queue.ClientConfig{}); err == nil || !strings.Contains(err.Error(), "redis.Ring") {
			t.Errorf("client: want it refused, have %v", err)
		}
	})
}

// The order of Conn and Wrap does not matter: idle workers are notified.
func TestWrapBeforeConn(t *testing.T) {
	t.Parallel()
	b, _ := setupAlone(t)
	st := newStage(t)
	p := &plain{wrapFirst: true, config: asynq.Config{TaskCheckInterval: time.Hour}}
	p.serve(t, b, st)
	b.awaitIdle(t, 1)
	start := time.Now()
	b.awaitGone(t, b.enqueue(t, b.job(1)))
	if took := time.Since(start); took > prompt {
		t.Errorf("want it run at once, have %v", took)
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

// The settings of a team in its asynq.Config still hold, for the tasks' own failures.
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
		t.Errorf("want no retry used and an hour away, have %+v", info)
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
		"oversized":     {plainTask(t, job{Res: strings.Repeat("x", store.MaxResource+1)}), "at most 512 bytes, have 513"},
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
		"queue: overrun: want 0 or more, have -1s": {Overrun: -time.Second},
		"lock: ttl: ": {Lock: lock.Config{TTL: time.Millisecond}},
		"queue: resources: order:audit: want a function, have nil": {Resources: map[string]queue.ResourceFunc{"order:audit": nil}},
	} {
		if _, err := queue.NewGuard(b.rdb, cfg); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("want %q, have %v", want, err)
		}
	}
}
