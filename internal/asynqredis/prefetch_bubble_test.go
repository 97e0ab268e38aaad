package asynqredis

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"
)

// A prefetched task is claimed in the middle of a round. The server begins another one with it: the fetcher
// neither takes the queues that were asked before for all that there are, nor for those that are empty.
func TestRoundEndsWithAPrefetchedTask(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bell := NewDoorbell(slog.New(slog.DiscardHandler))
		bell.Connect(func() (redis.UniversalClient, bool) {
			rdb := redis.NewClient(&redis.Options{Addr: "192.0.2.1:1"})
			rdb.AddHook(mute{})
			return rdb, true
		})
		defer bell.Close()
		h := NewHook(slog.New(slog.DiscardHandler), func() {})
		fetcher := h.Fetcher(bell)
		h.Prefetch(nil, func([]*Attempt) { t.Error("want nothing put back") })
		dequeue := fetcher.ProcessHook(func(_ context.Context, cmd redis.Cmder) error {
			cmd.SetErr(redis.Nil)
			return redis.Nil
		})
		ask := func(queue string) string {
			cmd := redis.NewCmd(t.Context(), "evalsha", dequeueSHA, 4, pendingKey(queue), pausedKey(queue), activeKey(queue), leaseKey(queue), int64(30), taskKeyPrefix(queue))
			_ = dequeue(t.Context(), cmd)
			text, _ := cmd.Text()
			return text
		}
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
		bell.mu.Lock()
		defer bell.mu.Unlock()
		if have := slices.Collect(maps.Keys(bell.posts)); !slices.Equal(have, []string{"a\nb\nc"}) {
			t.Errorf("want one post for all queues, have %q", have)
		}
	})
}
