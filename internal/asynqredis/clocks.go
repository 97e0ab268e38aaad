package asynqredis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// ClockOf tells by how much the clock of a server is ahead of this machine's, at least and at most,
// which are a second or a little more apart. It returns false for a server whose entry is gone.
//
// A server writes the end of its entry by its own clock, in whole seconds, and Redis counts the time to
// that end down.
func ClockOf(ctx context.Context, rdb redis.UniversalClient, s Server) (least, most time.Duration, ok bool, _ error) {
	key := fmt.Sprintf("%s{%s:%d:%s}", entryKeys, s.Host, s.PID, s.ID)
	asked := time.Now()
	pipe := rdb.Pipeline()
	score := pipe.ZScore(ctx, serversKey, key)
	left := pipe.PTTL(ctx, key)
	_, err := pipe.Exec(ctx)
	answered := time.Now()
	if errors.Is(err, redis.Nil) || err == nil && left.Val() <= 0 {
		return 0, 0, false, nil
	}
	if err != nil {
		return 0, 0, false, fmt.Errorf("asynqredis: clock of %v: %w", s, err)
	}
	end := time.Unix(int64(score.Val()), 0)
	least, most = end.Sub(answered.Add(left.Val())), end.Add(time.Second).Sub(asked.Add(left.Val()))
	return least, most, true, nil
}
