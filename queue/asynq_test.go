package queue_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/telemetry"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/queue"
)

// A team's own asynq.ServeMux and configuration work in a server that wires everything. Tasks wait
// for their resource. The configuration's rules for failures hold only for the tasks' own failures.
func TestServerOfAMux(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bundle) {
		var mu sync.Mutex
		var failures []error
		mux := asynq.NewServeMux()
		mux.Use(func(next asynq.Handler) asynq.Handler { // as teams have it, outside of nothing
			return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
				_, ok := asynq.GetTaskID(ctx)
				expect.That(b, ok, "want asynq's context")
				return next.ProcessTask(ctx, task)
			})
		})
		mux.HandleFunc(job{}.Kind(), handlerOf(b.run))
		s := b.newServer(queue.ServerConfig{
			Handler: mux, Resources: resources(),
			Asynq: asynq.Config{
				RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Millisecond },
				ErrorHandler: asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) {
					mu.Lock()
					defer mu.Unlock()
					failures = append(failures, err)
				}),
			},
		})
		queue.Handle(s, func(context.Context, note) error { return nil })
		start(b, s)
		holder := b.hold(0)
		failing := errors.New("its own failure")
		b.failOnce(0, failing)
		ids := []string{b.enqueuePlain(b.job(0))}
		within(b, patience, "the holder", holder.entered)
		for n := 1; n < 4; n++ {
			id := b.enqueuePlain(b.job(n), asynq.MaxRetry(0))
			b.awaitState(id, asynq.TaskStateRetry)
			ids = append(ids, id)
		}
		holder.open()
		b.awaitGone(append(ids, b.enqueue(note{}))...)
		b.wantCounts(6, 1)
		mu.Lock()
		defer mu.Unlock()
		expect.That(b, len(failures) == 1 && errors.Is(failures[0], failing),
			"want its own failure told, and nothing of those that waited, have %v", failures)
	})
}

// A task runs under the lock of the resource that its payload names. Its header may name another
// one by now, or none.
func TestPayloadNamesTheResource(t *testing.T) {
	t.Parallel()
	edited := func(b *bundle) string {
		id := b.enqueue(job{Res: b.resource + ".before", N: 1}, queue.Options{Delay: time.Hour})
		payload := expect.Value(json.Marshal(b.job(1)))(b)
		expect.OK(b, b.inspector.UpdateTaskPayload(b.queue, id, payload))
		expect.OK(b, b.inspector.RunTask(b.queue, id))
		return id
	}
	fromAPlainClient := func(b *bundle) string { return b.enqueuePlain(b.job(1)) }
	ways := map[string]func(*bundle) string{"edited": edited, "from a plain client": fromAPlainClient}
	eachOf(t, onBoth, ways, func(b *bundle, enqueue func(*bundle) string) {
		b.serve(queue.ServerConfig{Lock: longTimeout, Observe: b.observe}, b.run)
		holder := b.occupy()
		id := enqueue(b)
		info := b.awaitState(id, asynq.TaskStateRetry)
		want := "waits for " + b.resource + ", held by "
		expect.That(b, strings.HasPrefix(info.LastErr, want), "want the reason %q, have %q", want, info.LastErr)
		b.soonFree(b.resource + ".before")
		b.wantWaiters(id)
		behind := b.park(2)
		holder.open()
		b.awaitGone(append(behind, id)...)
		b.wantOrder(0, 1, 2)
		b.soonFree(b.resource + ".before")
		b.awaitBalance()
		done := 0
		for _, e := range b.of(queue.EventReleased, id) {
			if telemetry.Outcome(e.Err, false) == telemetry.Done {
				done++
			}
		}
		expect.Equal(b, "runs that count as done", done, 1)
	})
}

// A task from a plain client has no header. Its payload is read before its lock is taken, so the task runs
// once: for middleware, and for those who observe.
func TestPayloadOfAPlainClientIsReadFirst(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var calls atomic.Int64
	s := b.newServer(queue.ServerConfig{Observe: b.observe})
	s.Use(func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			calls.Add(1)
			return next.ProcessTask(ctx, task)
		})
	})
	queue.Handle(s, b.run)
	start(t, s)
	id := b.enqueuePlain(b.job(1))
	b.awaitGone(id)
	expect.Eventually(t, "its release", func() bool { return len(b.of(queue.EventReleased, id)) > 0 })
	for kind, want := range map[queue.EventKind]int{queue.EventStarted: 0, queue.EventFinished: 0, queue.EventAcquired: 1, queue.EventReleased: 1} {
		expect.Equal(t, kind.String(), len(b.of(kind, id)), want)
	}
	expect.Equal(t, "calls of the middleware", calls.Load(), 1)
}

// A fickle task names another resource each time it is asked.
type fickle struct{ job }

var asked atomic.Int64

func (fickle) Kind() string { return "test:fickle" }
func (f fickle) Resource() string {
	return f.Res + "." + time.Unix(asked.Add(1), 0).Format(time.TimeOnly)
}

func TestPayloadThatNamesAnotherResourceEachTime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.newServer(queue.ServerConfig{})
	queue.Handle(s, func(context.Context, fickle) error {
		t.Error("want it not run")
		return nil
	})
	start(t, s)
	info := b.awaitState(b.enqueue(fickle{b.job(1)}), asynq.TaskStateArchived)
	expect.That(t, strings.Contains(info.LastErr, "another one each time"), "want the reason, have %q", info.LastErr)
}

// Where Resources guards other kinds, the log says once of each kind that its tasks run unguarded. So
// does a kind that is misspelt there. One that Handle runs without a resource is unguarded on purpose, and the log says nothing of it.
func TestKindsThatRunUnguardedAreLogged(t *testing.T) {
	t.Parallel()
	type row struct {
		resources map[string]queue.ResourceFunc
		want      int
	}
	eachOf(t, onOne, map[string]row{
		"another kind is guarded": {map[string]queue.ResourceFunc{"test:jbo": resources()[job{}.Kind()]}, 1},
		"this kind is guarded":    {resources(), 0},
		"no kind is guarded":      {nil, 0},
	}, func(b *bundle, tt row) {
		logs := newLogs(b)
		s := b.newServer(queue.ServerConfig{Resources: tt.resources, Logger: logs.logger, Handler: handlerOf(b.run)})
		b.unfenced = true
		queue.Handle(s, func(context.Context, note) error { return nil })
		start(b, s)
		b.awaitGone(b.enqueue(note{}))
		for n := range 3 {
			b.awaitGone(b.enqueuePlain(b.job(n)))
		}
		shutdown(b, s)
		have := logs.lines("a task runs unguarded", slog.LevelInfo)
		expect.Need(b, len(have) == tt.want, "want %d lines, have %q", tt.want, have)
		for _, line := range have {
			expect.That(b, strings.Contains(line, "task_kind=test:job ") && strings.Contains(line, "guarded_kinds=[test:jbo]"),
				"want the kind and those that are guarded, have %q", line)
		}
	})
}
