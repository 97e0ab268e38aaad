package queue_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/queue"
)

// Tasks are in queues of these names: another name strands them.
func TestNamesOfShards(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		queue string
		want  []string
	}{
		{"orders", []string{"orders.000-mi", "orders.001-xz", "orders.002-ce", "orders.003-xh", "orders.010-mg", "orders.999-tb"}},
		{"default", []string{"default.000-fi", "default.001-mx", "default.002-cc", "default.003-yy", "default.010-ma", "default.999-kp"}},
	} {
		var have []string
		for _, i := range []int{0, 1, 2, 3, 10, 999} {
			have = append(have, queue.ShardName(tt.queue, i))
		}
		expect.Same(t, tt.queue, have, tt.want)
	}
}

// Resources are spread evenly over shards, and shards over the masters of a Cluster.
func TestSpreadOfShards(t *testing.T) {
	t.Parallel()
	even := func(what string, counts []int, mean, off int) {
		expect.That(t, slices.Min(counts) >= mean-off && slices.Max(counts) <= mean+off, "%s: want %d each, and at most %d off, have %v", what, mean, off, counts)
	}
	for _, n := range []int{2, 10, 16} {
		shardOf, counts := queue.ShardOf("default", n), make(map[string]int)
		for i := range 1000 * n {
			counts[shardOf(fmt.Sprint("sku:", i))]++
		}
		expect.Equal(t, "shards", len(counts), n)
		even(fmt.Sprint("resources on ", n, " shards"), slices.Collect(maps.Values(counts)), 1000, 190) // six standard deviations
	}
	expect.Equal(t, "slot of the specification's example", queue.SlotOf("123456789"), 0x31c3)
	const masters = 6
	for _, n := range []int{masters, 2 * masters, 4 * masters, 8 * masters} {
		for _, name := range []string{"default", "orders", "mail"} {
			counts := make([]int, masters)
			for i := range n {
				counts[queue.SlotOf(queue.ShardName(name, i))*masters/16384]++
			}
			even(fmt.Sprint(n, " shards of ", name), counts, n/masters, 1+n/masters/8)
		}
	}
}

// sharded returns a client whose bundle's queue has so many shards.
func (b *bundle) sharded(n int) *queue.Client {
	b.Helper()
	client := expect.Value(queue.NewClient(b.rdb, queue.ClientConfig{Shards: map[string]int{b.queue: n}}))(b)
	return client
}

// shard enqueues a task and returns the number of its shard.
func (b *bundle) shard(client *queue.Client, task queue.Task, opts queue.Options) int {
	b.Helper()
	opts.Queue = b.queue
	receipt := expect.Value(client.Enqueue(b.Context(), task, &opts))(b)
	var i int
	if _, err := fmt.Sscanf(strings.TrimPrefix(receipt.Queue, b.queue), ".%03d-", &i); err != nil || receipt.Queue != queue.ShardName(b.queue, i) {
		b.Fatalf("want a shard of %s, have %s", b.queue, receipt.Queue)
	}
	return i
}

// Tasks of one resource have to be in one shard, whoever enqueued them and when.
func TestShardOfAResource(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for n, want := range map[int]map[string]int{
		1:    {"order:536365": 0, "sku:85123A": 0, "account:17850": 0, "größe": 0},
		2:    {"order:536365": 1, "sku:85123A": 0, "account:17850": 0, "größe": 1},
		16:   {"order:536365": 15, "sku:85123A": 10, "account:17850": 6, "größe": 15},
		1000: {"order:536365": 847, "sku:85123A": 250, "account:17850": 590, "größe": 239},
	} {
		client := b.sharded(n)
		for resource, shard := range want {
			expect.Equal(t, fmt.Sprintf("%s of %d shards", resource, n), b.shard(client, job{Res: resource}, queue.Options{}), shard)
		}
	}
}

// Tasks without a resource go where their like would be found.
func TestShardOfAnUnguardedTask(t *testing.T) {
	t.Parallel()
	b := setup(t)
	client := b.sharded(1000)
	for _, tt := range []struct {
		n    int
		opts queue.Options
		want error
	}{
		{1, queue.Options{TaskID: "a"}, nil},
		{2, queue.Options{TaskID: "a"}, queue.ErrTaskIDConflict},
		{3, queue.Options{UniqueFor: time.Minute}, nil},
		{3, queue.Options{UniqueFor: time.Minute, TaskID: "b"}, queue.ErrDuplicate},
	} {
		tt.opts.Queue = b.queue
		expect.Is(t, fmt.Sprintf("%+v", tt.opts), expect.Err(client.Enqueue(t.Context(), note{tt.n}, &tt.opts)), tt.want)
	}
	seen := make(map[int]bool)
	for range 100 {
		seen[b.shard(client, note{4}, queue.Options{})] = true
	}
	if len(seen) < 80 { // some 95 have one
		t.Errorf("want the shards all used, have %d for 100 tasks", len(seen))
	}
}

func TestQueuesOfAServer(t *testing.T) {
	t.Parallel()
	have := queue.ShardQueues(map[string]int{"orders": 3, "mail": 1}, map[string]int{"orders": 2, "elsewhere": 9})
	want := map[string]int{"orders": 3, queue.ShardName("orders", 0): 3, queue.ShardName("orders", 1): 3, "mail": 1}
	expect.Same(t, "queues", have, want)
}

func TestShardsRefused(t *testing.T) {
	t.Parallel()
	shard := queue.ShardName("orders", 3)
	for _, tt := range []struct {
		name   string
		shards map[string]int
		queues map[string]int
		strict bool
		want   string
	}{
		{"none", map[string]int{"orders": 0}, nil, false, "queue: shards: orders: want 1 to 1000, have 0"},
		{"too many", map[string]int{"orders": 1001}, nil, false, "queue: shards: orders: want 1 to 1000, have 1001"},
		{"no name", map[string]int{"": 2}, nil, false, `queue: shards: want names of 1 to 249 bytes of UTF-8 without control characters, blanks at an end and {}/?#%\, other than . and .., have ""`},
		{"braces", map[string]int{"{a}": 2}, nil, false, `queue: shards: want names of 1 to 249 bytes of UTF-8 without control characters, blanks at an end and {}/?#%\, other than . and .., have "{a}"`},
		{"long name", map[string]int{strings.Repeat("x", 250): 2}, nil, false, "queue: shards: want names of 1 to 249 bytes"},
		{"a queue of a shard's name", map[string]int{"orders": 2}, map[string]int{shard: 1}, false, "queue: queues: want no name of a shard of orders, have " + shard},
		{"shards of a shard", map[string]int{"orders": 2, shard: 2}, nil, false, "queue: shards: want no name of a shard of orders, have " + shard},
		{"strict", map[string]int{"orders": 2}, map[string]int{"orders": 1}, true, "queue: shards: orders: want none with strict priority, as one shard would go before the other, have 2"},
		{"strict, but not of it", map[string]int{"orders": 2}, map[string]int{"mail": 1}, true, ""},
		{"no shard of a sharded queue", map[string]int{"mail": 2}, map[string]int{shard: 1, "mail.003-zz": 1, "mail.3": 1}, false, ""},
		{"served elsewhere", map[string]int{"orders": 1000}, nil, false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := queue.ServerConfig{Asynq: asynq.Config{Queues: tt.queues, StrictPriority: tt.strict}, Shards: tt.shards}.Validate()
			wantError(t, "server", tt.want, err)
			if tt.queues == nil {
				rdb := redis.NewClient(&redis.Options{})
				t.Cleanup(func() { _ = rdb.Close() })
				_, err := queue.NewClient(rdb, queue.ClientConfig{Shards: tt.shards})
				wantError(t, "client", tt.want, err)
				wantError(t, "check", tt.want, queue.ClientConfig{Shards: tt.shards}.Check(job{Res: "order:1"}, nil))
			}
		})
	}
}

// A check of a task costs no more with many shards: programs check each line of long files.
//
//nolint:paralleltest // it counts what it allocates
func TestCheckWithManyShards(t *testing.T) {
	allocated := func(shards int) float64 {
		cfg := queue.ClientConfig{Shards: map[string]int{"default": shards}}
		return testing.AllocsPerRun(10, func() { expect.OK(t, cfg.Check(job{Res: "order:1"}, nil)) })
	}
	if one, many := allocated(1), allocated(queue.MaxShards); many > 2*one {
		t.Errorf("want no more allocated for %d shards than for one, have %v and %v", queue.MaxShards, many, one)
	}
}

// A task that were put into a shard by name might be in another than its resource.
func TestShardsAreNotNamedByTasks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.sharded(2).Enqueue(t.Context(), b.job(1), &queue.Options{Queue: queue.ShardName(b.queue, 1)})
	wantError(t, "enqueue", fmt.Sprintf("test:job: queue: want %s, not one of its shards, have ", b.queue), err)
}

// Tasks may have been enqueued before a queue had shards, or by clients that know of none, or of
// fewer. They run as well, and wait for the same lock.
func TestShardsOfSeveralNumbers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.resource = "order:536365:" + b.queue
	b.serve(queue.ServerConfig{Shards: map[string]int{b.queue: 1000}}, b.run)
	first := b.hold(0)
	seen := make(map[string]bool)
	var last string
	for n, client := range []*queue.Client{b.client, b.sharded(30), b.sharded(1000), b.client} {
		receipt := expect.Value(client.Enqueue(t.Context(), b.job(n), &queue.Options{Queue: b.queue}))(t)
		seen[receipt.Queue], last = true, receipt.ID
		if n == 0 {
			within(t, patience, "the first to run", first.entered)
			continue
		}
		expect.Eventually(t, "the next to wait", func() bool {
			info, err := b.inspector.GetTaskInfo(receipt.Queue, receipt.ID)
			return err == nil && info.State == asynq.TaskStateRetry
		})
	}
	first.open()
	if have := b.awaitRuns(4); have[0] != 0 || !slices.Equal(slices.Sorted(slices.Values(have)), []int{0, 1, 2, 3}) {
		t.Errorf("want each to run once, the holder first, have %v", have)
	}
	b.awaitGone(last)
	expect.That(t, len(seen) >= 2, "want several asynq queues, have %v", seen)
}
