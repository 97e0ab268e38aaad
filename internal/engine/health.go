package engine

import (
	"context"

	"github.com/sidingq/siding/internal/sleep"
)

// checkHealth asks Redis at intervals whether it is there, and tells the user's function, if there is one, what the answer was. As in
// asynq, the first check comes after the first interval, and an interval begins when the user's function has returned.
func checkHealth(ctx context.Context, cfg *Config) {
	for cfg.HealthCheck != nil && sleep.For(ctx, cfg.HealthCheckInterval) == nil {
		err := cfg.Redis.Ping(ctx).Err()
		if ctx.Err() == nil { // or the end of the server looks like an illness of Redis
			tell(ctx, cfg.Logger, "HealthCheckFunc", func() { cfg.HealthCheck(err) })
		}
	}
}
