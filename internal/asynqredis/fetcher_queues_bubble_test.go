package asynqredis

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"
)

// A fetcher that falls asleep waits for the bells of all its queues, also the first time,
// when it has just learned how many there are.
func TestFetcherWaitsForAllItsQueues(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bell := NewDoorbell(slog.New(slog.DiscardHandler))
		bell.Connect(func() (redis.UniversalClient, bool) {
			// A name would be looked up, in a bubble that must not share that with others.
			rdb := redis.NewClient(&redis.Options{Addr: "192.0.2.1:1"})
			rdb.AddHook(mute{})
			return rdb, true
		})
		defer bell.Close()
		fetcher := NewHook(slog.New(slog.DiscardHandler), func() {}).Fetcher(bell)
		dequeue := fetcher.ProcessHook(func(_ context.Context, cmd redis.Cmder) error {
			cmd.SetErr(redis.Nil)
			return redis.Nil
		})
		for range 3 { // rounds
			for _, queue := range []string{"a", "b", "c"} {
				cmd := redis.NewCmd(t.Context(), "evalsha", dequeueSHA, 4, pendingKey(queue), pausedKey(queue), activeKey(queue), leaseKey(queue), int64(30), taskKeyPrefix(queue))
				if err := dequeue(t.Context(), cmd); !errors.Is(err, redis.Nil) {
					t.Fatalf("want no task, have %v", err)
				}
			}
		}
		bell.mu.Lock()
		defer bell.mu.Unlock()
		if have := slices.Collect(maps.Keys(bell.posts)); !slices.Equal(have, []string{"a\nb\nc"}) {
			t.Errorf("want one post for all queues, have %q", have)
		}
	})
}

// dequeueSHA is that of asynq's script.
const dequeueSHA = "a8153319360adc71cdc370107f8ab9786f204765"

// mute is a Redis that never answers.
type mute struct{}

func (mute) DialHook(next redis.DialHook) redis.DialHook { return next }

func (mute) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (mute) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		<-ctx.Done()
		cmd.SetErr(ctx.Err())
		return ctx.Err()
	}
}
