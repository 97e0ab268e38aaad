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
	"github.com/sidingq/siding/queue"
)

// A burst keeps what became of debounced tasks.
type burst struct {
	mu       sync.Mutex
	jobs     map[string]int // which job a task is, by id
	replaced map[string]bool
	runs     []run
}

// A run is of a task and its payload.
type run struct {
	id string
	n  int
}

// add enqueues a debounced job.
func (u *burst) add(t *testing.T, b *bundle, n int, opts queue.Options) queue.Receipt {
	t.Helper()
	opts.Queue = b.queue
	r, err := b.client.Enqueue(t.Context(), b.job(n), &opts)
	if err != nil {
		t.Error(err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.jobs[r.ID] = n
	if u.replaced[r.Replaced] {
		t.Errorf("%s was replaced twice", r.Replaced)
	}
	if r.Replaced != "" {
		u.replaced[r.Replaced] = true
	}
	return r
}

// run is the handler.
func (u *burst) run(ctx context.Context, j job) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.runs = append(u.runs, run{queue.InfoFrom(ctx).ID, j.N})
	return nil
}

// left returns the tasks that were not replaced, with their payloads.
func (u *burst) left() []run {
	u.mu.Lock()
	defer u.mu.Unlock()
	var left []run
	for id, n := range u.jobs {
		if !u.replaced[id] {
			left = append(left, run{id, n})
		}
	}
	return left
}

func (u *burst) ran() []run {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.runs)
}

func newBurst() *burst { return &burst{jobs: make(map[string]int), replaced: make(map[string]bool)} }

// Tasks that come without end cannot keep one from running. Each task runs once, or is replaced by one.
func TestDebounceUnderFire(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		t.Helper()
		u := newBurst()
		b.serve(t, queue.ServerConfig{}, u.run)
		opts := queue.Options{Debounce: "536365", Delay: time.Second, MaxDelay: 2 * time.Second}
		var wg sync.WaitGroup
		end := time.Now().Add(patience)
		for p := range 4 {
			wg.Go(func() {
				for n := 0; len(u.ran()) == 0 && time.Now().Before(end) && !t.Failed(); n += 4 {
					u.add(t, b, n+p, opts)
				}
			})
		}
		wg.Wait()
		if len(u.ran()) == 0 {
			t.Fatalf("want a run within %v", patience)
		}
		poll.Eventually(t, "all that is left to run", func() bool { return len(u.ran()) >= len(u.left()) })
		left, ran := u.left(), u.ran()
		byID := func(a, b run) int { return strings.Compare(a.id, b.id) }
		slices.SortFunc(left, byID)
		slices.SortFunc(ran, byID)
		if !slices.Equal(left, ran) {
			t.Errorf("want the tasks that nobody replaced to run once each, %v, have %v", left, ran)
		}
		poll.Eventually(t, "none left", func() bool { return b.stats(t).Size == 0 }) // the last one may not be settled yet
	})
}

// The task waits for its resource as any other does, and what comes meanwhile is not its business.
func TestDebouncedTaskWaitsForItsResource(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		t.Helper()
		u, st := newBurst(), newStage(t)
		b.serve(t, queue.ServerConfig{}, st.run)
		holder := b.occupy(t, st)
		opts := queue.Options{Debounce: "536365", Delay: time.Second, MaxDelay: time.Second}
		first := u.add(t, b, 1, opts)
		b.awaitState(t, first.ID, asynq.TaskStateRetry)
		second := u.add(t, b, 2, opts)
		if second.Replaced != "" {
			t.Errorf("want the one that waits for its resource left, have %s replaced", second.Replaced)
		}
		b.awaitState(t, second.ID, asynq.TaskStateRetry)
		holder.open()
		b.awaitGone(t, first.ID, second.ID)
		st.wantOrder(0, 1, 2)
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
	must(t, err)
	for i, replaces := range []int{-1, 0, -1, -1, 1, 2, -1, -1, -1, 7} {
		want := ""
		if replaces >= 0 {
			want = results[replaces].ID
		}
		if r := results[i]; r.Err != nil || r.Replaced != want {
			t.Errorf("job %d: want %q replaced, have %+v", i, want, r)
		}
	}
	if have := b.stats(t).Scheduled; have != 5 {
		t.Errorf("want 5 tasks, have %d", have)
	}
}

// Tasks that replace each other share a shard: those of a resource anyway.
func TestDebounceInShards(t *testing.T) {
	t.Parallel()
	b := setup(t)
	client := b.sharded(t, 1000)
	for name, task := range map[string]func(n int) queue.Task{
		"guarded":   func(n int) queue.Task { return b.job(n) },
		"unguarded": func(n int) queue.Task { return note{n} },
	} {
		var last queue.Receipt
		seen := make(map[string]bool)
		for n := range 50 {
			opts := &queue.Options{Queue: b.queue, Debounce: "x", Delay: time.Hour, MaxDelay: time.Hour}
			r, err := client.Enqueue(t.Context(), task(n), opts)
			if err != nil || r.Replaced != last.ID || n > 0 && r.Queue != last.Queue {
				t.Fatalf("%s: want %+v replaced, have %+v, %v", name, last, r, err)
			}
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
