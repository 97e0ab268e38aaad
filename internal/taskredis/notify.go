package taskredis

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

var (
	wakeScript = script("wake")
	idleScript = script("idle")
)

// Notify wakes one idle server of each queue.
func (c *Steps) Notify(ctx context.Context, queues ...string) error {
	keys := make([]string, len(queues))
	for i, queue := range queues {
		keys[i] = NotifyKey(queue)
	}
	if err := wakeScript.Run(ctx, c.Redis, keys).Err(); err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("taskredis: notify: %w", err)
	}
	return nil
}

// Idle says that the server has free slots for tasks of these queues, of which there are at most 1,000.
func (c *Steps) Idle(ctx context.Context, queues ...string) error {
	if len(queues) == 0 {
		return nil
	}
	argv := make([]any, len(queues))
	for i, queue := range queues {
		argv[i] = queue
	}
	if err := idleScript.Run(ctx, c.Redis, []string{slotsOf("")}, argv...).Err(); err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("taskredis: idle: %w", err)
	}
	return nil
}
