package asynqredis

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/redisreply"
	"github.com/sidingq/siding/internal/roundtrip"
)

var sampleScript = OwnScript(lua("sample"))

// SampleWaiting estimates for how long the tasks of queues have waited, summed up for each lock, from
// some of them at random: so many of each queue. It returns only locks for which one of these waits. It
// takes one round trip, or one for each node of a Cluster, and changes nothing.
func SampleWaiting(ctx context.Context, rdb redis.UniversalClient, queues []string, of int) (map[string]time.Duration, error) {
	replies, err := listsOf(roundtrip.Run(ctx, rdb, sampleScript, len(queues), func(i int) ([]string, []any) {
		return []string{RetryKey(queues[i])}, []any{TaskKeyPrefix(queues[i]), of}
	}))
	if err != nil {
		return nil, fmt.Errorf("asynqredis: sample waiting tasks: %w", err)
	}
	sums := make(map[string]time.Duration)
	for _, row := range replies {
		now, pairs := redisreply.Int(row, 0), redisreply.List(row, 3)
		stands := float64(redisreply.Int(row, 1)) / float64(max(1, redisreply.Int(row, 2))) // for so many tasks each
		for i := 0; i+1 < len(pairs); i += 2 {
			waited := max(0, now-redisreply.Int(pairs, i+1))
			sums[redisreply.Text(pairs, i)] += time.Duration(stands * float64(waited) * float64(time.Microsecond))
		}
	}
	return sums, nil
}
