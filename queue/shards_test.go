package queue_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/poll"
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
		if diff := gocmp.Diff(tt.want, have); diff != "" {
			t.Errorf("%s (-want +have):\n%s", tt.queue, diff)
		}
	}
}

// sharded returns a client whose bundle's queue has so many shards.
func (b *bundle) sharded(t *testing.T, n int) *queue.Client {
	t.Helper()
	client, err := queue.NewClient(b.rdb, queue.ClientConfig{Shards: map[string]int{b.queue: n}})
	must(t, err)
	return client
}

// shard enqueues a task and returns the number of its shard.
func (b *bundle) shard(t *testing.T, client *queue.Client, task queue.Task, opts queue.Options) int {
	t.Helper()
	opts.Queue = b.queue
	receipt, err := client.Enqueue(t.Context(), task, &opts)
	must(t, err)
	var i int
	if _, err := fmt.Sscanf(strings.TrimPrefix(receipt.Queue, b.queue), ".%03d-", &i); err != nil || receipt.Queue != queue.ShardName(b.queue, i) {
		t.Fatalf("want a shard of %s, have %s", b.queue, receipt.Queue)
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
		client := b.sharded(t, n)
		for resource, shard := range want {
			if have := b.shard(t, client, job{Res: resource}, queue.Options{}); have != shard {
				t.Errorf("%s of %d shards: want %d, have %d", resource, n, shard, have)
			}
		}
	}
}

// Tasks without a resource go where their like would be found.
func TestShardOfAnUnguardedTask(t *testing.T) {
	t.Parallel()
	b := setup(t)
	client := b.sharded(t, 1000)
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
		if _, err := client.Enqueue(t.Context(), note{tt.n}, &tt.opts); !errors.Is(err, tt.want) {
			t.Errorf("%+v: want %v, have %v", tt.opts, tt.want, err)
		}
	}
	seen := make(map[int]bool)
	for range 100 {
		seen[b.shard(t, client, note{4}, queue.Options{})] = true
	}
	if len(seen) < 80 { // some 95 have one
		t.Errorf("want the shards all used, have %d for 100 tasks", len(seen))
	}
}

func TestQueuesOfAServer(t *testing.T) {
	t.Parallel()
	have := queue.ShardQueues(map[string]int{"orders": 3, "mail": 1}, map[string]int{"orders": 2, "elsewhere": 9})
	want := map[string]int{"orders": 3, queue.ShardName("orders", 0): 3, queue.ShardName("orders", 1): 3, "mail": 1}
	if diff := gocmp.Diff(want, have); diff != "" {
		t.Errorf("(-want +have):\n%s", diff)
	}
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
			}
		})
	}
}

// wantError compares the beginning of an error; "" means none.
func wantError(t *testing.T, what, want string, err error) {
	t.Helper()
	if (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%s:\nwant %s\nhave %v", what, want, err)
	}
}

// A task that were put into a shard by name might be in another than its resource.
func TestShardsAreNotNamedByTasks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.sharded(t, 2).Enqueue(t.Context(), b.job(1), &queue.Options{Queue: queue.ShardName(b.queue, 1)})
	wantError(t, "enqueue", fmt.Sprintf("test:job: queue: want %s, not one of its shards, have ", b.queue), err)
}

// Tasks may have been enqueued before a queue had shards, or by clients that know of none, or of
// fewer. They run as well, and wait for the same lock.
func TestShardsOfSeveralNumbers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.resource = "order:536365:" + b.queue
	st := newStage(t)
	b.serve(t, queue.ServerConfig{Shards: map[string]int{b.queue: 1000}}, st.run)
	first := st.hold(0)
	seen := make(map[string]bool)
	var last string
	for n, client := range []*queue.Client{b.client, b.sharded(t, 30), b.sharded(t, 1000), b.client} {
		receipt, err := client.Enqueue(t.Context(), b.job(n), &queue.Options{Queue: b.queue})
		must(t, err)
		seen[receipt.Queue], last = true, receipt.ID
		if n == 0 {
			within(t, patience, "the first to run", first.entered)
			continue
		}
		poll.Eventually(t, "the next to wait", func() bool {
			info, err := b.inspector.GetTaskInfo(receipt.Queue, receipt.ID)
			return err == nil && info.State == asynq.TaskStateRetry
		})
	}
	first.open()
	if have := st.awaitRuns(4); have[0] != 0 || !slices.Equal(slices.Sorted(slices.Values(have)), []int{0, 1, 2, 3}) {
		t.Errorf("want each to run once, the holder first, have %v", have)
	}
	b.awaitGone(t, last)
	if len(seen) < 2 {
		t.Errorf("want several asynq queues, have %v", seen)
	}
}
