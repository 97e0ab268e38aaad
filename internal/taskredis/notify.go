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
	return Wake(ctx, c.Redis, keysOf(queues, NotifyKey)...)
}

// Wake wakes whoever waits at lists; see wake.lua.
func Wake(ctx context.Context, rdb redis.Scripter, lists ...string) error {
	if err := wakeScript.Run(ctx, rdb, lists).Err(); err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("taskredis: wake: %w", err)
	}
	return nil
}

// Idle says that the server has free slots for tasks of these queues, of which there are at most 1,000.
func (c *Steps) Idle(ctx context.Context, queues ...string) error {
	if len(queues) == 0 {
		return nil
	}
	if err := idleScript.Run(ctx, c.Redis, []string{slotsOf("")}, texts(nil, queues)...).Err(); err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("taskredis: idle: %w", err)
	}
	return nil
}
