package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
)

// checkAsynq refuses what asynq's configuration says of what ServerConfig has a field for.
func checkAsynq(c asynq.Config) error {
	for _, field := range []struct {
		name string
		set  bool
	}{
		{"Concurrency", c.Concurrency != 0},
		{"Queues", c.Queues != nil},
		{"StrictPriority", c.StrictPriority},
		{"TaskCheckInterval, which is PollInterval", c.TaskCheckInterval != 0},
		{"DelayedTaskCheckInterval, which is TimerInterval", c.DelayedTaskCheckInterval != 0},
		{"ShutdownTimeout", c.ShutdownTimeout != 0},
	} {
		if field.set {
			return fmt.Errorf("queue: asynq: want it zero here, and set in ServerConfig: %s", field.name)
		}
	}
	return nil
}

// common returns what all lanes of the server are told.
func (s *Server) common() asynq.Config {
	c := s.cfg.Asynq
	c.StrictPriority = s.cfg.StrictPriority
	c.TaskCheckInterval = s.cfg.PollInterval
	c.ShutdownTimeout = s.cfg.ShutdownTimeout
	if c.Logger == nil {
		c.Logger = asynqLogger{s.cfg.Logger, new(logEvery)}
	}
	onError := c.ErrorHandler
	c.ErrorHandler = asynq.ErrorHandlerFunc(func(ctx context.Context, t *asynq.Task, err error) {
		s.logFailure(ctx, t, err)
		if onError != nil {
			onError.HandleError(ctx, t, err)
		}
	})
	return c
}

// lanesOf shares the work out among asynq servers that have all else in common. The first is asked
// for the server's health, and, where they have the same queues, looks at the timers, and cleans
// up, for all.
func lanesOf(cfg ServerConfig, common asynq.Config) []asynq.Config {
	const never = 24 * time.Hour
	lanes := make([]asynq.Config, min(cfg.Lanes, cfg.Concurrency))
	for i := range lanes {
		lanes[i] = common
		lanes[i].Queues = laneQueues(cfg.Queues, cfg.Shards, i, len(lanes))
		lanes[i].Concurrency = (cfg.Concurrency + i) / len(lanes)
		lanes[i].DelayedTaskCheckInterval = cfg.TimerInterval
		if i > 0 {
			lanes[i].HealthCheckFunc = nil
		}
		if i > 0 && len(cfg.Shards) == 0 {
			lanes[i].DelayedTaskCheckInterval, lanes[i].JanitorInterval = never, never
		}
	}
	return lanes
}
