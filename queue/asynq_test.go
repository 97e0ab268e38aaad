package queue_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/queue"
)

// A team's own asynq.ServeMux and configuration, in a server that wires everything: tasks wait for
// their resource, and what the configuration says of failures holds for their own failures alone.
func TestServerOfAMux(t *testing.T) {
	t.Parallel()
	inBothWays(t, func(t *testing.T, b *bundle) {
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

func TestServerRefusesWhatItHasAFieldFor(t *testing.T) {
	t.Parallel()
	for want, config := range map[string]asynq.Config{
		"Concurrency":              {Concurrency: 1},
		"Queues":                   {Queues: map[string]int{"default": 1}},
		"StrictPriority":           {StrictPriority: true},
		"TaskCheckInterval":        {TaskCheckInterval: time.Second},
		"DelayedTaskCheckInterval": {DelayedTaskCheckInterval: time.Second},
		"ShutdownTimeout":          {ShutdownTimeout: time.Second},
	} {
		if err := (queue.ServerConfig{Asynq: config}).Validate(); err == nil || !strings.Contains(err.Error(), ": "+want) {
			t.Errorf("want an error that names %s, have %v", want, err)
		}
	}
	if err := (queue.ServerConfig{Asynq: asynq.Config{StrictPriority: false}}).Validate(); err != nil {
		t.Errorf("want the zero value accepted, have %v", err)
	}
}
