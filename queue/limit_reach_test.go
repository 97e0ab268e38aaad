package queue_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/queue"
)

// An operator pauses the resources of a pattern. A second later no server starts a task of it any more.
func TestOverridesReachAllServers(t *testing.T) {
	t.Parallel()
	verify.Long(t)
	onBoth(t, func(t *testing.T, b *bundle) {
		t.Helper()
		const servers, rounds = 3, 15
		pattern := b.resource + ":*" // each server has a resource of its own, and one task at a time
		var mu sync.Mutex
		last, paused := make(map[string]time.Time), make(map[string]bool) // by queue, and by task
		isPaused := func(id string) bool {
			mu.Lock()
			defer mu.Unlock()
			return paused[id]
		}
		var queues []string
		for i := range servers {
			queues = append(queues, fmt.Sprintf("%s.%d", b.queue, i))
			b.serve(t, queue.ServerConfig{
				Asynq: asynq.Config{Queues: map[string]int{queues[i]: 1}},
				Observe: func(e queue.Event) {
					mu.Lock()
					defer mu.Unlock()
					if e.Kind == queue.EventParked && strings.Contains(e.Err.Error(), "paused it") {
						paused[e.TaskID] = true
					}
				},
			}, func(ctx context.Context, _ job) error {
				mu.Lock()
				defer mu.Unlock()
				last[queue.InfoFrom(ctx).Queue] = time.Now()
				return nil
			})
		}
		gone := func(q, id string) bool {
			n, err := b.rdb.Exists(t.Context(), "asynq:{"+q+"}:t:"+id).Result()
			return err == nil && n == 0
		}
		var reached []time.Duration
		for range rounds {
			set := time.Now()
			err := queue.SetLimit(t.Context(), b.rdb, queue.LimitOverride{Pattern: pattern, By: "alice", Reason: "stock count"})
			must(t, err)
			var wg sync.WaitGroup
			waiting := make([]string, servers)
			for i, q := range queues {
				wg.Go(func() {
					for !isPaused(waiting[i]) {
						waiting[i] = b.enqueue(t, job{Res: fmt.Sprintf("%s:%d", b.resource, i)}, queue.Options{Queue: q})
						poll.Eventually(t, "the task done or parked", func() bool { return gone(q, waiting[i]) || isPaused(waiting[i]) })
					}
				})
			}
			wg.Wait()
			mu.Lock()
			took := time.Duration(0)
			for _, at := range last {
				took = max(took, at.Sub(set))
			}
			mu.Unlock()
			reached = append(reached, took)
			if _, err := queue.UnsetLimit(t.Context(), b.rdb, "", pattern); err != nil {
				t.Fatal(err)
			}
			for i, q := range queues {
				poll.Eventually(t, "the task done after the pause", func() bool { return gone(q, waiting[i]) })
			}
		}
		slices.Sort(reached)
		middle, most := reached[rounds/2], reached[rounds-1]
		t.Logf("the last start came %v after the pause in the middle, %v at most", middle, most)
		if middle > time.Second { // a machine that does much else may be late now and then
			t.Errorf("want all servers to know within a second, have %v in the middle of %v", middle, reached)
		}
	})
}
