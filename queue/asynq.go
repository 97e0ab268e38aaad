package queue

import (
	"context"
	"fmt"

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

// asynqConfig returns the configuration of asynq's server.
func (s *Server) asynqConfig() asynq.Config {
	c := s.cfg.Asynq
	c.Queues = shardQueues(s.cfg.Queues, s.cfg.Shards)
	c.StrictPriority = s.cfg.StrictPriority
	c.Concurrency = s.cfg.Concurrency
	c.DelayedTaskCheckInterval = s.cfg.TimerInterval
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
