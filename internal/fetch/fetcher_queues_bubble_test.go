package fetch

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"
)

// A fetcher that waits is notified of all its queues. That also holds the first time, when it has
// just seen how many there are.
func TestFetcherWaitsForAllItsQueues(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, _, ask := fetcherOfEmptyQueues(t)
		for range 3 { // rounds
			for _, queue := range []string{"a", "b", "c"} {
				if have := ask(queue); have != "" {
					t.Fatalf("want no task, have %q", have)
				}
			}
		}
		wantOneSubscription(t, n)
	})
}

// A prefetched task is claimed in the middle of a round, and a new round begins. The fetcher must
// not take the queues that were asked before for all queues. Nor must it count them as empty in the
// new round.
func TestRoundEndsWithAPrefetchedTask(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, fetcher, ask := fetcherOfEmptyQueues(t)
		ask("a")
		ask("b")
		fetcher.Deliver(Task{Message: "task"})
		if have := ask("c"); have != "task" {
			t.Fatalf("want the prefetched task, have %q", have)
		}
		for range 3 { // rounds
			for _, queue := range []string{"b", "a", "c"} {
				ask(queue)
			}
		}
		wantOneSubscription(t, n)
	})
}

// fetcherOfEmptyQueues returns a fetcher, its notifier, and what asks it for a task of a queue. All queues
// are empty. The test fails if a task is requeued.
func fetcherOfEmptyQueues(t *testing.T) (n *Notifier, fetcher *Fetcher, ask func(queue string) string) {
	t.Helper()
	n = NewNotifier(slog.New(slog.DiscardHandler), func([]Task) { t.Error("want nothing requeued") })
	n.Connect(func() (redis.UniversalClient, bool) {
		// A name would be looked up, in a bubble that must not share that with others.
		rdb := redis.NewClient(&redis.Options{Addr: "192.0.2.1:1"})
		rdb.AddHook(mute{})
		return rdb, true
	})
	t.Cleanup(n.Close)
	n.Serves(map[string]int{"a": 1, "b": 1, "c": 1}, false)
	fetcher = n.Fetcher()
	return n, fetcher, func(queue string) string {
		t.Helper()
		task, err := fetcher.Dequeue(t.Context(), queue, func(string) (Task, error) { return Task{}, redis.Nil })
		if err != nil && !errors.Is(err, redis.Nil) {
			t.Fatalf("want a task or none, have %v", err)
		}
		return task.Message
	}
}

// wantOneSubscription fails the test unless the notifier listens for the queues a, b and c in one call.
func wantOneSubscription(t *testing.T, n *Notifier) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if have := slices.Collect(maps.Keys(n.subscriptions)); !slices.Equal(have, []string{"a\nb\nc"}) {
		t.Errorf("want one subscription for all queues, have %q", have)
	}
}

// mute is a Redis that never answers.
type mute struct{}

func (mute) DialHook(next redis.DialHook) redis.DialHook { return next }

func (mute) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (mute) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		<-ctx.Done()
		cmd.SetErr(ctx.Err())
		return ctx.Err()
	}
}

// Two servers share a connection, and both find their queues empty. A notification for one queue does not
// make its task an answer to the dequeue of the other server. Both servers then ask for themselves.
func TestSharedConnectionGivesNoTaskOfAnotherServersQueue(t *testing.T) {
	t.Parallel()
	for name, serves := range map[string][]map[string]int{
		"different queues":   {{"a": 1}, {"b": 1}},
		"one has both":       {{"a": 1}, {"a": 1, "b": 1}},
		"one is not guarded": {{"b": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n, fetcher, ask := fetcherOfEmptyQueues(t)
				n.orders = nil
				for _, queues := range serves {
					n.Serves(queues, false)
				}
				for range 2 { // rounds
					ask("b")
					ask("a")
				}
				scanned := make(chan string, 2)
				asked := make(chan error)
				scan := func(queue string) (Task, error) {
					scanned <- queue
					return Task{Message: queue}, nil
				}
				fetcher.state, fetcher.queues, fetcher.round = resting, []string{"a", "b"}, []string{"b"}
				go func() {
					_, err := fetcher.Dequeue(t.Context(), "a", scan)
					asked <- err
				}()
				synctest.Wait()
				n.mu.Lock()
				fetcher.queue = "b"
				woken := fetcher.to(notified)
				n.mu.Unlock()
				if err := <-asked; !woken || !errors.Is(err, redis.Nil) || len(scanned) > 0 {
					t.Fatalf("want the held dequeue woken and no task, have %v, %v, %d scans", woken, err, len(scanned))
				}
				if task, err := fetcher.Dequeue(t.Context(), "b", scan); err != nil || task.Message != "b" {
					t.Errorf("want the task for the server that asks for it, have %+v, %v", task, err)
				}
			})
		})
	}
}
