package queue_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/queue"
)

// BenchmarkGuard is what the guard adds to a task, without the work of Redis and of its
// connections. A lock is acquired, renewed and released.
func BenchmarkGuard(b *testing.B) {
	guard, err := queue.NewGuard(redistest.Obliging{}, queue.GuardConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	ctx := guard.Wrap(asynq.Config{}).BaseContext()
	runs := 0
	handler := guard.Middleware(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		runs++
		return nil
	}))
	task := guarded("test:job", "order:536365", []byte(`{"order":536365}`))
	b.ReportAllocs()
	for b.Loop() {
		if err := handler.ProcessTask(ctx, task); err != nil {
			b.Fatal(err)
		}
	}
	if runs == 0 {
		b.Fatal("want tasks run, have none")
	}
}
