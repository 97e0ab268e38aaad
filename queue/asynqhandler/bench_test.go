package asynqhandler_test

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/engine"
	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/queue/asynqhandler"
)

// BenchmarkTask shows what a task costs beside its handler.
func BenchmarkTask(b *testing.B) {
	rdb := redis.NewClient(&redis.Options{})
	b.Cleanup(func() { _ = rdb.Close() })
	h := expect.Value(asynqhandler.New(rdb, asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })))(b)
	ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
	defer cancel()
	for _, bench := range []struct {
		name    string
		headers map[string]string
	}{
		{"without headers", nil},
		{"with headers", map[string]string{"siding-resource": "order:1", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			task := &engine.Task{Message: &taskredis.Message{Type: "type", ID: "id", Queue: "queue", Headers: bench.headers}}
			b.ReportAllocs()
			for b.Loop() {
				expect.OK(b, h(ctx, task))
			}
		})
	}
}
