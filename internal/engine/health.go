package engine

import (
	"context"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/sleep"
)

// A healthCheck asks Redis at intervals whether it is there, and tells the user's function what the answer was.
type healthCheck struct {
	redis  redis.UniversalClient
	every  time.Duration
	report func(error) // nil for no checks
	logger *slog.Logger
}

// run checks until ctx ends. As in asynq, the first check comes after the first interval, and an interval
// begins when the user's function has returned.
func (h *healthCheck) run(ctx context.Context) {
	for h.report != nil && sleep.For(ctx, h.every) == nil {
		h.check(ctx)
	}
}

func (h *healthCheck) check(ctx context.Context) {
	err := h.redis.Ping(ctx).Err()
	if ctx.Err() == nil { // or the end of the server looks like an illness of Redis
		tell(ctx, h.logger, "HealthCheckFunc", func() { h.report(err) })
	}
}
