package engine

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// In a Cluster each queue has its own elected server.
func TestUpkeepInCluster(t *testing.T) {
	t.Parallel()
	rdb := redistest.StartCluster(t, 2).Client(t)
	cfg := Config{Redis: rdb, Queues: map[string]int{"a": 1, "b": 1, "c": 1}, Cluster: true, TTL: 15 * time.Second, Logger: slog.New(slog.DiscardHandler)}
	found := make(chan string, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	until := time.Now().Add(time.Hour).Unix()
	for queue := range cfg.Queues {
		lock := taskredis.LockPrefix(queue, "lock:") + "order:1"
		for id, fields := range map[string][]any{
			"late":    {"state", "scheduled"},
			"crashed": {"state", "active", "msg", (&Message{Type: "kind", ID: "crashed", Queue: queue, Retry: 1}).Encode()},
			"waits":   {"state", "retry", "siding_lock", lock, "siding_ticket", 1, "siding_until", until},
		} {
			expect.OK(t, rdb.HSet(ctx, taskredis.TaskKey(queue, id), fields...).Err())
		}
		for key, z := range map[string]redis.Z{
			taskredis.ScheduledKey(queue): {Member: "late", Score: 5},
			taskredis.LeaseKey(queue):     {Member: "crashed", Score: 5},
			taskredis.RetryKey(queue):     {Member: "waits", Score: float64(until)},
		} {
			expect.OK(t, rdb.ZAdd(ctx, key, z).Err())
		}
		expect.OK(t, rdb.LPush(ctx, taskredis.ActiveKey(queue), "crashed").Err())
	}
	cfg = cfg.withDefaults()
	for _, session := range []string{"one", "two"} {
		for _, u := range newUpkeeps(&cfg, session, func(queues ...string) { found <- queues[0] }) {
			running.Go(func() { u.run(ctx) })
		}
	}
	for queue := range cfg.Queues {
		for key, want := range map[string]int64{
			taskredis.PendingKey(queue): 1, taskredis.NotifyKey(queue): 1, taskredis.ReadyKey(queue): 1, taskredis.RetryKey(queue): 2, taskredis.ActiveKey(queue): 0,
		} {
			expect.Eventually(t, fmt.Sprintf("%d elements in %s", want, key), func() bool {
				n, err := rdb.LLen(ctx, key).Result()
				if err != nil {
					n, err = rdb.ZCard(ctx, key).Result()
				}
				return err == nil && n == want
			})
		}
	}
	all := make(map[string]bool)
	for len(all) < len(cfg.Queues) {
		all[<-found] = true
	}
}
