package queue_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/queue"
)

// A team's own asynq.ServeMux and configuration work in a server that wires everything. Tasks wait
// for their resource. The configuration's rules for failures hold only for the tasks' own failures.
func TestServerOfAMux(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st := newStage(t)
		var mu sync.Mutex
		var failures []error
		mux := asynq.NewServeMux()
		mux.Use(func(next asynq.Handler) asynq.Handler { // as teams have it, outside of nothing
			return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
				if _, ok := asynq.GetTaskID(ctx); !ok {
					t.Error("want asynq's context")
				}
				return next.ProcessTask(ctx, task)
			})
		})
		mux.HandleFunc(job{}.Kind(), func(ctx context.Context, task *asynq.Task) error {
			var j job
			if err := json.Unmarshal(task.Payload(), &j); err != nil {
				return err
			}
			return st.run(ctx, j)
		})
		s := b.newServer(t, queue.ServerConfig{
			Handler: mux, Guard: queue.GuardConfig{Resources: resources()},
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
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { shutdown(t, s) })
		holder := st.hold(0)
		failing, failed := errors.New("its own failure"), false
		st.act(0, func() error {
			if failed {
				return nil
			}
			failed = true
			return failing
		})
		ids := []string{b.enqueuePlain(t, b.job(0))}
		within(t, patience, "the holder", holder.entered)
		for n := 1; n < 4; n++ {
			id := b.enqueuePlain(t, b.job(n), asynq.MaxRetry(0))
			b.awaitState(t, id, asynq.TaskStateRetry)
			ids = append(ids, id)
		}
		holder.open()
		b.awaitGone(t, append(ids, b.enqueue(t, note{}))...)
		mu.Lock()
		defer mu.Unlock()
		if len(failures) != 1 || !errors.Is(failures[0], failing) {
			t.Errorf("want its own failure told, and nothing of those that waited, have %v", failures)
		}
	})
}

// Each field of asynq's configuration reaches asynq's server as it is, except those to which the
// server adds. A field of a later asynq is missing from given.
func TestServerTakesEveryFieldOfAsynq(t *testing.T) {
	t.Parallel()
	const base = contextKey("base")
	var called []string
	call := func(name string) { called = append(called, name) }
	given := asynq.Config{
		Concurrency:              7,
		BaseContext:              func() context.Context { return context.WithValue(context.Background(), base, true) },
		TaskCheckInterval:        2 * time.Second,
		RetryDelayFunc:           func(int, error, *asynq.Task) time.Duration { call("RetryDelayFunc"); return time.Hour },
		IsFailure:                func(error) bool { call("IsFailure"); return false },
		Queues:                   map[string]int{"a": 2, "off": 0},
		StrictPriority:           true,
		ErrorHandler:             asynq.ErrorHandlerFunc(func(context.Context, *asynq.Task, error) { call("ErrorHandler") }),
		Logger:                   plainLogger{newLogs(t).logger},
		LogLevel:                 asynq.ErrorLevel,
		ShutdownTimeout:          3 * time.Second,
		HealthCheckFunc:          func(error) { call("HealthCheckFunc") },
		HealthCheckInterval:      4 * time.Second,
		DelayedTaskCheckInterval: 5 * time.Second,
		GroupGracePeriod:         6 * time.Second,
		GroupMaxDelay:            7 * time.Second,
		GroupMaxSize:             8,
		GroupAggregator:          asynq.GroupAggregatorFunc(func(string, []*asynq.Task) *asynq.Task { call("GroupAggregator"); return nil }),
		JanitorInterval:          9 * time.Second,
		JanitorBatchSize:         10,
	}
	b, task, failure := setup(t), asynq.NewTask("test:job", nil), errors.New("failure")
	s := b.newServer(t, queue.ServerConfig{Asynq: given})
	t.Cleanup(func() { shutdown(t, s) })
	have := queue.AsynqConfig(s)
	added := map[string]func(){ // what is not merely passed on, or cannot be compared
		"BaseContext": func() { // the guard marks it
			if have.BaseContext().Value(base) != true {
				t.Error("BaseContext: want it to be of the given one")
			}
		},
		"TaskCheckInterval": func() { // the notifier holds dequeues back for so long, and asynq does not sleep
			if have.TaskCheckInterval != 10*time.Millisecond {
				t.Errorf("TaskCheckInterval: have %v", have.TaskCheckInterval)
			}
		},
		"Queues": func() { // asynq ignores what has no weight
			if !maps.Equal(have.Queues, map[string]int{"a": 2}) {
				t.Errorf("Queues: have %v", have.Queues)
			}
		},
		"RetryDelayFunc":  func() { have.RetryDelayFunc(1, failure, task) }, // not of a task that waits
		"IsFailure":       func() { have.IsFailure(failure) },               // the same
		"ErrorHandler":    func() { have.ErrorHandler.HandleError(t.Context(), task, failure) },
		"HealthCheckFunc": func() { have.HealthCheckFunc(nil) },
		"GroupAggregator": func() { have.GroupAggregator.Aggregate("", nil) },
	}
	fields := reflect.TypeFor[asynq.Config]()
	for i := range fields.NumField() {
		name, want := fields.Field(i).Name, reflect.ValueOf(given).Field(i)
		if want.IsZero() {
			t.Errorf("%s: this test gives it no value", name)
			continue
		}
		check, ok := added[name]
		if !ok {
			if have := reflect.ValueOf(have).Field(i).Interface(); have != want.Interface() {
				t.Errorf("%s: want %v, have %v", name, want, have)
			}
			continue
		}
		called = nil
		if check(); want.Kind() == reflect.Func && name != "BaseContext" && !slices.Equal(called, []string{name}) {
			t.Errorf("%s: want it called, have %v", name, called)
		}
	}
}

type contextKey string
