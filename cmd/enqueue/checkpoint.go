package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed checkpoint.lua
var checkpointSource string

// checkpointAge is how long a checkpoint is kept after its last move.
const checkpointAge = 30 * 24 * time.Hour

// A checkpoint is a number in Redis: all that the lines of a file up to this
// one ask for has been enqueued. It lives where the tasks live, so that a Redis
// that lost the tasks has lost it too and the file can be enqueued again.
type checkpoint struct {
	redis  redis.UniversalClient
	script *redis.Script
	key    string
}

// newCheckpoint returns the checkpoint of a file with this content as it is
// read by the command, into the queue. The number in the key is that of the
// meaning of what it says: lines of the file. Change it with that.
func newCheckpoint(client redis.UniversalClient, command, queue, content string) *checkpoint {
	return &checkpoint{
		redis:  client,
		script: redis.NewScript(checkpointSource),
		key:    fmt.Sprintf("siding:enqueue:1:%s:%s:%s", command, content, queue),
	}
}

// load returns the line to go on behind; 0 to begin.
func (c *checkpoint) load(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	text, err := c.redis.Get(ctx, c.key).Result()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("checkpoint: %w", err)
	}
	line, err := strconv.Atoi(text)
	if err != nil || line < 0 {
		return 0, fmt.Errorf("checkpoint: key %q: want a line number, have %q; --restart forgets it", c.key, clip(text))
	}
	return line, nil
}

// save says that all lines up to this one have been dealt with.
func (c *checkpoint) save(ctx context.Context, line int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := c.script.Run(ctx, c.redis, []string{c.key}, line, int(checkpointAge.Seconds())).Err()
	if err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

// forget makes the next load return 0.
func (c *checkpoint) forget(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := c.redis.Del(ctx, c.key).Err(); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}
