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
		_, bell, ask := fetcherOfEmptyQueues(t)
		for range 3 { // rounds
			for _, queue := range []string{"a", "b", "c"} {
				if have := ask(queue); have != "" {
					t.Fatalf("want no task, have %q", have)
				}
			}
		}
		wantOnePost(t, bell)
	})
}

// A prefetched task is claimed in the middle of a round, and a new round begins. The fetcher must not
// take the queues that were asked before for all queues, nor count them as empty in the new round.
func TestRoundEndsWithAPrefetchedTask(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fetcher, bell, ask := fetcherOfEmptyQueues(t)
		ask("a")
		ask("b")
		fetcher.deliver(taken{msg: "task"}, &Attempt{})
		if have := ask("c"); have != "task" {
			t.Fatalf("want the prefetched task, have %q", have)
		}
		for range 3 { // rounds
			for _, queue := range []string{"b", "a", "c"} {
				ask(queue)
			}
		}
		wantOnePost(t, bell)
	})
}

// fetcherOfEmptyQueues returns a fetcher, its bell, and what asks it for a task of a queue. All queues are
// empty. The test fails if a task is put back.
func fetcherOfEmptyQueues(t *testing.T) (fetcher *Fetcher, bell *Doorbell, ask func(queue string) string) {
	t.Helper()
	bell = NewDoorbell(slog.New(slog.DiscardHandler))
	bell.Connect(func() (redis.UniversalClient, bool) {
		// A name would be looked up, in a bubble that must not share that with others.
		rdb := redis.NewClient(&redis.Options{Addr: "192.0.2.1:1"})
		rdb.AddHook(mute{})
		return rdb, true
	})
	t.Cleanup(bell.Close)
	h := NewHook(slog.New(slog.DiscardHandler), func() {})
	h.Prefetch(nil, func([]*Attempt) { t.Error("want nothing put back") })
	h.Serves(map[string]int{"a": 1, "b": 1, "c": 1}, false)
	fetcher = h.Fetcher(bell)
	dequeue := fetcher.ProcessHook(func(_ context.Context, cmd redis.Cmder) error {
		cmd.SetErr(redis.Nil)
		return redis.Nil
	})
	return fetcher, bell, func(queue string) string {
		t.Helper()
		cmd := redis.NewCmd(t.Context(), "evalsha", dequeueSHA, 4, pendingKey(queue), pausedKey(queue), activeKey(queue), leaseKey(queue), int64(30), taskKeyPrefix(queue))
		if err := dequeue(t.Context(), cmd); err != nil && !errors.Is(err, redis.Nil) {
			t.Fatalf("want a task or none, have %v", err)
		}
		task, _ := cmd.Text()
		return task
	}
}

// wantOnePost fails the test unless the bell listens to the queues a, b and c in one call.
func wantOnePost(t *testing.T, bell *Doorbell) {
	t.Helper()
	bell.mu.Lock()
	defer bell.mu.Unlock()
	if have := slices.Collect(maps.Keys(bell.posts)); !slices.Equal(have, []string{"a\nb\nc"}) {
		t.Errorf("want one post for all queues, have %q", have)
	}
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
