//go:build unix

package chaos

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/expect"
)

// history ends the fleet and collects what is known.
func (r *run) history(t *testing.T) *History {
	t.Helper()
	h := &History{
		Tasks: r.feed.tasks, Faults: append(r.faults, r.testbed.uninjected(r.faults)...),
		Processes: make(map[string]*Process), Concurrency: concurrency, Planned: r.planned, Archived: make(map[string]string), Started: make(map[string]bool),
	}
	slices.SortFunc(h.Faults, func(a, b Fault) int { return cmp.Compare(a.Start, b.Start) })
	expect.OK(t, r.fleet.shutdown(h))
	h.Effects = expect.Value(r.ledger.Effects(t.Context()))(t)
	for _, queue := range Queues {
		const all = 20000
		tasks := expect.Value(r.feed.inspector.ListArchivedTasks(queue, asynq.PageSize(all)))(t)
		for _, task := range tasks {
			h.Archived[task.ID] = task.LastErr
			h.Started[task.ID] = expect.Value(r.testbed.client().HExists(t.Context(), "asynq:{"+queue+"}:t:"+task.ID, "siding_began").Result())(t)
		}
	}
	h.Forever = expect.Value(r.forever(t.Context(), h))(t)
	return h
}

// forever returns the keys without expiry, except those that asynq keeps by design.
func (r *run) forever(ctx context.Context, h *History) ([]string, error) {
	known := map[string]bool{"asynq:queues": true, "asynq:servers": true, "asynq:workers": true}
	for _, queue := range Queues {
		for _, key := range []string{"archived", "processed", "failed"} {
			known["asynq:{"+queue+"}:"+key] = true
		}
		for id := range maps.Keys(h.Archived) {
			known["asynq:{"+queue+"}:t:"+id] = true
		}
	}
	var mu sync.Mutex // nodes of a cluster are asked side by side
	var keys []string
	scan := func(ctx context.Context, rdb *redis.Client) error {
		for each := rdb.Scan(ctx, 0, "*", 1000).Iterator(); each.Next(ctx); {
			left, err := rdb.TTL(ctx, each.Val()).Result()
			if err != nil {
				return err
			}
			if left == -1 && !known[each.Val()] {
				mu.Lock()
				keys = append(keys, each.Val())
				mu.Unlock()
			}
		}
		return nil
	}
	switch rdb := r.testbed.client().(type) {
	case *redis.ClusterClient:
		return keys, rdb.ForEachMaster(ctx, scan)
	case *redis.Client:
		return keys, scan(ctx, rdb)
	default:
		return nil, fmt.Errorf("a client of type %T", rdb)
	}
}

// tasksIn returns the tasks that are in those lists of asynq's.
func tasksIn(inspector *asynq.Inspector, lists ...list) (map[string]bool, error) {
	const all = 20000
	known, err := inspector.Queues()
	if err != nil {
		return nil, err
	}
	found := make(map[string]bool)
	for _, queue := range known {
		for _, list := range lists {
			tasks, err := list(queue, asynq.PageSize(all))
			if err != nil {
				return nil, err
			}
			for _, task := range tasks {
				found[task.ID] = true
			}
		}
	}
	return found, nil
}
