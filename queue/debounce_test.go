package queue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/queue"
)

// Tasks that come without end cannot keep one from running.
func TestDebounceUnderFire(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bundle) {
		b.serve(queue.ServerConfig{}, b.run)
		opts := queue.Options{Debounce: "536365", Delay: time.Second, MaxDelay: 2 * time.Second}
		expect.Eventually(b, "a run", func() bool {
			b.enqueue(b.job(1), opts)
			return len(b.order()) > 0
		})
		expect.Eventually(b, "none left", func() bool { return b.stats().Size == 0 })
	})
}

// The task waits for its resource as any other does, and what comes meanwhile is not its business.
func TestDebouncedTaskWaitsForItsResource(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bundle) {
		b.serve(queue.ServerConfig{}, b.run)
		holder := b.occupy()
		var ids []string
		for n := 1; n <= 2; n++ {
			opts := &queue.Options{Queue: b.queue, Debounce: "536365", Delay: time.Second, MaxDelay: time.Second}
			r, err := b.client.Enqueue(b.Context(), b.job(n), opts)
			expect.That(b, err == nil && r.Replaced == "", "want the one that waits for its resource left, have %+v, %v", r, err)
			b.awaitState(r.ID, asynq.TaskStateRetry)
			ids = append(ids, r.ID)
		}
		holder.open()
		b.awaitGone(ids...)
		b.wantOrder(0, 1, 2)
	})
}

// A batch replaces within itself, and says so. Only the debounce of the same kind and resource counts, or of the same
// several resources in any order.
func TestDebounceInABatch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	opts := &queue.Options{Queue: b.queue, Debounce: "x", Delay: time.Hour, MaxDelay: time.Hour}
	other := job{Res: b.resource + ":other"}
	results, err := b.client.EnqueueBatch(t.Context(), []queue.Job{
		{b.job(1), opts},
		{b.job(2), opts},
		{note{1}, opts},
		{other, opts},
		{b.job(3), opts},
		{note{2}, opts},
		{b.job(4), nil},
		{transfer{[]string{"a", "b"}, 1}, opts},
		{transfer{[]string{"b"}, 2}, opts},
		{transfer{[]string{"b", "a"}, 3}, opts},
	})
	expect.OK(t, err)
	for i, replaces := range []int{-1, 0, -1, -1, 1, 2, -1, -1, -1, 7} {
		want := ""
		if replaces >= 0 {
			want = results[replaces].ID
		}
		r := results[i]
		expect.That(t, r.Err == nil && r.Replaced == want, "job %d: want %q replaced, have %+v", i, want, r)
	}
	expect.Equal(t, "tasks", b.stats().Scheduled, 5)
}

// Tasks that replace each other share a shard: those of a resource anyway.
func TestDebounceInShards(t *testing.T) {
	t.Parallel()
	b := setup(t)
	client := b.sharded(1000)
	for name, task := range map[string]func(n int) queue.Task{
		"guarded":   func(n int) queue.Task { return b.job(n) },
		"unguarded": func(n int) queue.Task { return note{n} },
	} {
		var last queue.Receipt
		seen := make(map[string]bool)
		for n := range 50 {
			opts := &queue.Options{Queue: b.queue, Debounce: "x", Delay: time.Hour, MaxDelay: time.Hour}
			r, err := client.Enqueue(t.Context(), task(n), opts)
			expect.Need(t, err == nil && r.Replaced == last.ID && (n == 0 || r.Queue == last.Queue),
				"%s: want %+v replaced, have %+v, %v", name, last, r, err)
			last = r
			if opts.Debounce = fmt.Sprint("other ", n); name == "unguarded" {
				if r, err = client.Enqueue(t.Context(), task(n), opts); err != nil {
					t.Fatal(err)
				}
				seen[r.Queue] = true
			}
		}
		if name == "unguarded" && len(seen) < 30 { // some 49 have one
			t.Errorf("want other debounces in other shards, have %d for 50", len(seen))
		}
	}
}
