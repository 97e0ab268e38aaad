package fetch_test

import (
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/fetch"
)

// inKitchen runs a test in a bubble with a fetcher whose only queue is empty, and with what was requeued.
func inKitchen(t *testing.T, run func(t *testing.T, f *fetch.Fetcher, ask func() string, requeued *[]string)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var requeued []string
		n := fetch.NewNotifier(slog.New(slog.DiscardHandler), func(tasks []fetch.Task) {
			for _, task := range tasks {
				requeued = append(requeued, task.Message)
			}
		})
		stub := newRedisStub()
		n.Connect(func() (redis.UniversalClient, bool) { return stub, true })
		n.Serves(map[string]int{"a": 1}, false)
		t.Cleanup(n.Close)
		f := n.Fetcher()
		run(t, f, func() string {
			task, err := f.Dequeue(t.Context(), "a", stub.scan)
			if err != nil && !errors.Is(err, redis.Nil) {
				t.Errorf("want a task or none, have %v", err)
			}
			return task.Message
		}, &requeued)
	})
}

// A dequeue that is held back gets a prefetched task at once, and tasks that come together one by one.
func TestPrefetchedTaskIsDelivered(t *testing.T) {
	t.Parallel()
	inKitchen(t, func(t *testing.T, f *fetch.Fetcher, ask func() string, requeued *[]string) {
		t.Helper()
		ask()
		time.AfterFunc(300*time.Millisecond, func() {
			if w := f.Wants("a", true); !w.Waiter || len(w.Queues) > 0 {
				t.Errorf("a server that waits: want it to want a waiter only, have %+v", w)
			}
			f.Deliver(fetch.Task{Message: "first"})
			f.Deliver(fetch.Task{Message: "second"})
		})
		start := time.Now()
		if have := ask(); have != "first" || time.Since(start) != 300*time.Millisecond {
			t.Errorf("want the first task after 300 ms, have %q after %v", have, time.Since(start))
		}
		if w := f.Wants("a", true); !w.Waiter || !slices.Equal(w.Queues, []string{"a"}) {
			t.Errorf("a server that runs a task: want it to want any next task, have %+v", w)
		}
		if have := ask(); have != "second" || len(*requeued) > 0 {
			t.Errorf("want the second task and none requeued, have %q, %q", have, *requeued)
		}
	})
}

// A new server learns by its first two rounds how many queues it has. Prefetched tasks that come while it
// sleeps between its rounds do not keep it from that: it is held back then, and sleeps no more.
func TestNewServerIsHeldBackAmongPrefetchedTasks(t *testing.T) {
	t.Parallel()
	inKitchen(t, func(t *testing.T, f *fetch.Fetcher, ask func() string, _ *[]string) {
		t.Helper()
		if have := ask(); have != "" {
			t.Fatalf("the first round: want no task, have %q", have)
		}
		f.Deliver(fetch.Task{Message: "first"})
		if have := ask(); have != "first" {
			t.Fatalf("the second round: want the first task, have %q", have)
		}
		time.AfterFunc(300*time.Millisecond, func() { f.Deliver(fetch.Task{Message: "second"}) })
		start := time.Now()
		if have := ask(); have != "second" || time.Since(start) != 300*time.Millisecond {
			t.Errorf("want the second task after 300 ms, have %q after %v", have, time.Since(start))
		}
	})
}

// Tasks that no dequeue claims in time are requeued, and for a while no more are wanted.
func TestUnclaimedTasksAreRequeued(t *testing.T) {
	t.Parallel()
	inKitchen(t, func(t *testing.T, f *fetch.Fetcher, ask func() string, requeued *[]string) {
		t.Helper()
		f.Deliver(fetch.Task{Message: "first"})
		time.Sleep(100 * time.Millisecond)
		f.Deliver(fetch.Task{Message: "second"})
		time.Sleep(110 * time.Millisecond)
		synctest.Wait()
		if !slices.Equal(*requeued, []string{"first"}) {
			t.Errorf("want the first task requeued, have %q", *requeued)
		}
		f.Close()
		f.Deliver(fetch.Task{Message: "third"})
		if !slices.Equal(*requeued, []string{"first", "second", "third"}) {
			t.Errorf("want all tasks requeued by the end, have %q", *requeued)
		}
		if have := ask(); have != "" {
			t.Errorf("want no task, have %q", have)
		}
	})
}

// A server that has gone wants nothing, and neither does one that has left a task unclaimed.
func TestGoneServerWantsNothing(t *testing.T) {
	t.Parallel()
	inKitchen(t, func(t *testing.T, f *fetch.Fetcher, ask func() string, _ *[]string) {
		t.Helper()
		ask()
		ask() // held back, and then answered as in vain
		if w := f.Wants("a", true); !w.Waiter {
			t.Errorf("a server that rests: want it to want a waiter, have %+v", w)
		}
		time.Sleep(201 * time.Millisecond)
		if w := f.Wants("a", true); w.Waiter || len(w.Queues) > 0 {
			t.Errorf("a server that has gone: want it to want nothing, have %+v", w)
		}
		f.Deliver(fetch.Task{Message: "late"})
		time.Sleep(9 * time.Second)
		time.AfterFunc(500*time.Millisecond, func() {
			if w := f.Wants("a", true); w.Waiter {
				t.Errorf("a server that left a task: want it to want nothing, have %+v", w)
			}
		})
		ask()
		time.AfterFunc(500*time.Millisecond, func() {
			if w := f.Wants("a", true); !w.Waiter {
				t.Errorf("ten seconds later: want it to want a waiter, have %+v", w)
			}
		})
		ask()
	})
}
