package asynqredis

import (
	"context"
	"log/slog"
	"testing"

	"github.com/redis/go-redis/v9"
)

// BenchmarkHook is what the hook itself does for a task, from its dequeue to the
// acknowledgement, without Redis: run it with -benchmem.
func BenchmarkHook(b *testing.B) {
	const queue, id, done = "default", "5f1c2a9e-0000-4000-8000-000000000001", "1241eaa1c73409baaf1fea0c08d203a4911bda15"
	h := NewHook(slog.New(slog.DiscardHandler), func() {})
	msg := any("\x0a\x0border:audit\x12\x12{\"order\":\"536365\"}\x1a\x24" + id)
	process := h.ProcessHook(func(_ context.Context, cmd redis.Cmder) error {
		if c, ok := cmd.(*redis.Cmd); ok {
			c.SetVal([]any{msg, int64(0), []any{}})
		}
		return nil
	})
	h.acks.scripts = map[string]script{done: newScript("return 1")}
	dequeue := []any{"evalsha", dequeueSHA, 4, pendingKey(queue), pausedKey(queue), activeKey(queue), leaseKey(queue), int64(30), taskKeyPrefix(queue)}
	over := []any{"evalsha", done, 5, activeKey(queue), leaseKey(queue), taskKey(queue, id), "asynq:{default}:processed:2026-11-21", "asynq:{default}:processed", id, int64(1), int64(2)}
	b.ReportAllocs()
	for b.Loop() {
		for _, call := range [][]any{dequeue, over} {
			if err := process(b.Context(), redis.NewCmd(b.Context(), call...)); err != nil {
				b.Fatal(err)
			}
		}
	}
	if h.Attempt(queue, id) != nil {
		b.Fatal("want the attempt over")
	}
}
