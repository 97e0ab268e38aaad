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

var moveCheckpoint = redis.NewScript(checkpointSource)

// checkpointAge is how long Redis keeps a checkpoint after its last move.
const checkpointAge = 30 * 24 * time.Hour

// A checkpoint is the number of a line in Redis: the tasks of the lines up to it are enqueued. The
// number is kept where the tasks are, in a Cluster in the slot of the queue. A Redis that has lost the
// tasks has lost the checkpoint too, and the file can be enqueued again. In a Cluster that does not
// hold for shards, and for lines that name another queue.
type checkpoint struct {
	redis redis.UniversalClient
	key   string
}

// newCheckpoint returns the checkpoint of a file with this content, for a command
// and a queue. The 1 in the key is the version of the format: a number of lines.
func newCheckpoint(client redis.UniversalClient, command, queue, content string) *checkpoint {
	return &checkpoint{client, fmt.Sprintf("siding:enqueue:1:%s:%s:{%s}", command, content, queue)}
}

// load returns the last line that is done; 0 at first.
func (c *checkpoint) load(ctx context.Context) (int, error) {
	text, err := c.redis.Get(ctx, c.key).Result()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("checkpoint: %w", err)
	}
	line, err := strconv.Atoi(text)
	if err != nil || line < 0 {
		return 0, fmt.Errorf("checkpoint: key %q: want a line number, have %.60q; --restart forgets it", c.key, text)
	}
	return line, nil
}

// save says that all lines up to this one are done.
func (c *checkpoint) save(ctx context.Context, line int) error {
	err := moveCheckpoint.Run(ctx, c.redis, []string{c.key}, line, int(checkpointAge.Seconds())).Err()
	if err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

// forget makes the next load return 0.
func (c *checkpoint) forget(ctx context.Context) error {
	if err := c.redis.Del(ctx, c.key).Err(); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}
