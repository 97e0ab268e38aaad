package queue_test

import (
	"context"
	"encoding/json"
	"errors"
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
	onBoth(t, func(t *testing.T, b *bundle) {
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
		start(t, s)
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
