package queue_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/queue"
)

// masters is how many the Cluster of these tests has.
const masters = 6

// The masters of a Cluster share the tasks of a sharded queue. Tasks of one resource
// exclude each other and go in order, whichever shard they share.
func TestShardsInACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, masters)
	b := setupOn(t, redis.UniversalOptions{Addrs: cluster.Addrs})
	t.Run("names are spread over the masters", func(t *testing.T) {
		t.Parallel()
		rdb := cluster.Client(t)
		for _, n := range []int{masters, 2 * masters, 4 * masters, 8 * masters} {
			for _, name := range []string{"default", "orders", b.queue} {
				wantSpread(t, rdb, name, n)
			}
		}
	})
	t.Run("tasks are", func(t *testing.T) {
		t.Parallel()
		const shards, tasks = 24, 1200
		st, client := newStage(t), b.sharded(t, shards)
		before := enqueued(t, cluster)
		used := make(map[string]bool)
		for n := range tasks {
			r, err := client.Enqueue(t.Context(), job{Res: fmt.Sprintf("%s:%d", b.resource, n%400), N: n}, &queue.Options{Queue: b.queue})
			must(t, err)
			used[r.Queue] = true
		}
		if len(used) != shards {
			t.Errorf("want tasks in %d shards, have them in %d", shards, len(used))
		}
		pushed, all := enqueued(t, cluster), 0
		for i := range pushed {
			pushed[i] -= before[i]
			all += pushed[i]
		}
		for i, n := range pushed {
			share := float64(n) / float64(all)
			t.Logf("master %d: %.1f %% of the tasks", i, 100*share)
			if share < 0.5/masters || share > 1.7/masters {
				t.Errorf("master %d: want about 1/%d of the tasks, have %.3f", i, masters, share)
			}
		}
		b.serve(t, queue.ServerConfig{Shards: map[string]int{b.queue: shards}}, st.run)
		if have := st.awaitRuns(tasks); len(have) != tasks {
			t.Errorf("want each task to run once, have %d runs", len(have))
		}
	})
	t.Run("resources are handed on in order", func(t *testing.T) {
		t.Parallel()
		contend(t, cluster)
	})
}

// wantSpread fails the test unless each master has about as many of a queue's
// shards as the others.
func wantSpread(t *testing.T, rdb *redis.ClusterClient, name string, n int) {
	t.Helper()
	counts := make([]int, masters)
	for i := range n {
		slot, err := rdb.ClusterKeySlot(t.Context(), "asynq:{"+queue.ShardName(name, i)+"}:pending").Result()
		must(t, err)
		counts[int(slot)*masters/16384]++
	}
	t.Logf("%d shards of %s: %v", n, name, counts)
	mean := n / masters
	if least, most := slices.Min(counts), slices.Max(counts); least < mean-1-mean/8 || most > mean+1+mean/8 {
		t.Errorf("%d shards of %s: want about %d on each master, have %v", n, name, mean, counts)
	}
}

// enqueued returns how many tasks each master was ever given, and how many notifications of such.
func enqueued(t *testing.T, cluster *redistest.Cluster) []int {
	t.Helper()
	var all []int
	for _, node := range cluster.Nodes {
		info, err := node.Client(t).InfoMap(t.Context(), "commandstats").Result()
		must(t, err)
		calls, _, _ := strings.Cut(strings.TrimPrefix(info["Commandstats"]["cmdstat_lpush"], "calls="), ",")
		n, _ := strconv.Atoi(calls) // none yet
		all = append(all, n)
	}
	return all
}

// contend has three tasks wait for each of some resources, and lets them go.
func contend(t *testing.T, cluster *redistest.Cluster) {
	t.Helper()
	const resources, waiting = 12, 3
	b := setupOn(t, redis.UniversalOptions{Addrs: cluster.Addrs})
	client := b.sharded(t, 8)
	var mu sync.Mutex
	order := make(map[string][]int)
	st := newStage(t)
	b.serve(t, queue.ServerConfig{Asynq: asynq.Config{Concurrency: 4 * (resources + 1)}, Shards: map[string]int{b.queue: 8}}, func(ctx context.Context, j job) error {
		mu.Lock()
		order[j.Res] = append(order[j.Res], j.N%10)
		mu.Unlock()
		return st.run(ctx, j)
	})
	used := make(map[string]bool)
	want := make(map[string][]int)
	var gates []*gate
	for i := range resources {
		resource := fmt.Sprintf("%s:%d", b.resource, i)
		for n := range 1 + waiting {
			want[resource] = append(want[resource], n)
			if n == 0 {
				gates = append(gates, st.hold(10*i))
			}
			r, err := client.Enqueue(t.Context(), job{Res: resource, N: 10*i + n}, &queue.Options{Queue: b.queue})
			must(t, err)
			used[r.Queue] = true
			if n == 0 {
				within(t, patience, "the first to run", gates[i].entered)
				continue
			}
			poll.Eventually(t, "the next to wait", func() bool {
				at := *b
				at.queue, at.resource = r.Queue, resource
				return len(at.waiters(t)) == n
			})
		}
	}
	for _, g := range gates {
		g.open()
	}
	st.awaitRuns(resources * (1 + waiting))
	mu.Lock()
	defer mu.Unlock()
	if !maps.EqualFunc(want, order, slices.Equal) {
		t.Errorf("order of the tasks of each resource: want %v, have %v", want, order)
	}
	if len(used) < 4 {
		t.Errorf("want several shards used, have %d", len(used))
	}
}
