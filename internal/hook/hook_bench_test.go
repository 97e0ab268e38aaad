package hook

import (
	"context"
	"log/slog"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/asynqredis"
)

// dequeueSHA is that of asynq's script.
const dequeueSHA = "a8153319360adc71cdc370107f8ab9786f204765"

// BenchmarkHook is what the hook itself does for a task, from its dequeue to the acknowledgement,
// without Redis. Run it with -benchmem.
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
	h.scripts.scripts.Store(done, asynqredis.NewScript("return 1"))
	dequeue := []any{"evalsha", dequeueSHA, 4, asynqredis.PendingKey(queue), asynqredis.PausedKey(queue), asynqredis.ActiveKey(queue), asynqredis.LeaseKey(queue), int64(30), asynqredis.TaskKeyPrefix(queue)}
	over := []any{"evalsha", done, 5, asynqredis.ActiveKey(queue), asynqredis.LeaseKey(queue), asynqredis.TaskKey(queue, id), "asynq:{default}:processed:2026-11-21", "asynq:{default}:processed", id, int64(1), int64(2)}
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
