package queue_test

import (
	"context"
	"errors"
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

// Of many tasks that come at once one is left, which has a payload that came last, and runs once. The next one begins anew.
func TestDebounce(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		t.Helper()
		const producers, each = 6, 10
		u := newBurst()
		long := queue.Options{Debounce: "536365", Delay: time.Hour, MaxDelay: 2 * time.Hour}
		var wg sync.WaitGroup
		for p := range producers {
			wg.Go(func() {
				for n := range each {
					u.add(t, b, p*each+n, long)
				}
			})
		}
		wg.Wait()
		left := u.left()
		if len(left) != 1 || left[0].n%each != each-1 {
			t.Fatalf("want one task left, the last of some producer, have %v", left)
		}
		soon := long
		soon.Delay = time.Second
		last := u.add(t, b, 99, soon)
		if last.Replaced != left[0].id {
			t.Errorf("want %s replaced, have %s", left[0].id, last.Replaced)
		}
		b.serve(t, queue.ServerConfig{}, u.run)
		b.awaitGone(t, last.ID)
		again := u.add(t, b, 100, soon)
		if again.Replaced != "" {
			t.Errorf("want the next one to replace none, have %s", again.Replaced)
		}
		b.awaitGone(t, again.ID)
		if have, want := u.ran(), []run{{last.ID, 99}, {again.ID, 100}}; !slices.Equal(have, want) {
			t.Errorf("want the runs %v, have %v", want, have)
		}
	})
}

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

// What an operator has run, archived or deleted stays so. The next task begins anew.
func TestDebounceAfterAnOperator(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		do   func(*asynq.Inspector, string, string) error
		left asynq.TaskState
	}{
		"run":      {(*asynq.Inspector).RunTask, asynq.TaskStatePending},
		"archived": {(*asynq.Inspector).ArchiveTask, asynq.TaskStateArchived},
		"deleted":  {(*asynq.Inspector).DeleteTask, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(t *testing.T, b *bundle) {
				t.Helper()
				u := newBurst()
				opts := queue.Options{Debounce: "536365", Delay: time.Hour, MaxDelay: time.Hour}
				first := u.add(t, b, 1, opts)
				if err := tt.do(b.inspector, b.queue, first.ID); err != nil {
					t.Fatal(err)
				}
				second := u.add(t, b, 2, opts)
				if have := b.state(first.ID); second.Replaced != "" || have != tt.left {
					t.Errorf("want the first one left in state %v, have %v, and %q replaced", tt.left, have, second.Replaced)
				}
				if third := u.add(t, b, 3, opts); third.Replaced != second.ID {
					t.Errorf("want the second one replaced, have %q", third.Replaced)
				}
			})
		})
	}
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

// A batch replaces within itself, and says so. Only the debounce of the same kind and resource counts.
func TestDebounceInABatch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	opts := &queue.Options{Queue: b.queue, Debounce: "x", Delay: time.Hour, MaxDelay: time.Hour}
	other := job{Res: b.resource + ":other"}
	results, err := b.client.EnqueueBatch(t.Context(), []queue.Job{
		{b.job(1), opts}, {b.job(2), opts}, {note{1}, opts}, {other, opts}, {b.job(3), opts}, {note{2}, opts}, {b.job(4), nil},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, replaces := range []int{-1, 0, -1, -1, 1, 2, -1} {
		want := ""
		if replaces >= 0 {
			want = results[replaces].ID
		}
		if r := results[i]; r.Err != nil || r.Replaced != want {
			t.Errorf("job %d: want %q replaced, have %+v", i, want, r)
		}
	}
	if have := b.stats(t).Scheduled; have != 3 {
		t.Errorf("want 3 tasks, have %d", have)
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

// asynq's clients cannot replace a task.
func TestDebounceIsNotForAsynqsClients(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.client.NewTask(b.job(1), &queue.Options{Debounce: "x", Delay: time.Second, MaxDelay: time.Second})
	var bad *queue.TaskError
	const want = `test:job: debounce: want none here, as asynq's clients do not know it, have "x"`
	if !errors.As(err, &bad) || err.Error() != want {
		t.Errorf("want %s, have %v", want, err)
	}
}
