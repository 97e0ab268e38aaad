package taskredis

import (
	"context"

	"github.com/redis/go-redis/v9"
)

var probeScript = script("probe")

// Probe returns why no tasks of a queue could be taken now, and nil if they could: as Redis does not answer, is a replica, is
// full, or denies the user a right. It takes none. The error is as Redis or its client has it.
func Probe(ctx context.Context, rdb redis.Scripter, queue string) error {
	return probeScript.Run(ctx, rdb, []string{PendingKey(queue), sidingKey(queue, "probe")}).Err()
}
