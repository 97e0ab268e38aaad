package fetch

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

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
		task, err := fetcher.Dequeue(t.Context(), queue, func(...string) (Task, error) { return Task{}, redis.Nil })
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
				scan := func(queues ...string) (Task, error) {
					scanned <- queues[0]
					return Task{Message: queues[0]}, nil
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

// If one call can ask several queues, a server asks its first queue, and by one more call all the others.
// If all are empty, its dequeue is held back at once, and the others of the round are not. From then on
// the server wants the next waiter.
func TestOneCallAsksAllOtherQueues(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, fetcher, _ := fetcherOfEmptyQueues(t)
		n.AskTogether()
		var scans [][]string
		task := ""
		scan := func(queues ...string) (Task, error) {
			scans = append(scans, slices.Sorted(slices.Values(queues)))
			if task == "" || len(queues) == 1 {
				return Task{}, redis.Nil
			}
			return Task{Message: task}, nil
		}
		want := func(what, queue, message string, wanted ...[]string) {
			t.Helper()
			have, err := fetcher.Dequeue(t.Context(), queue, scan)
			if have.Message != message || errors.Is(err, redis.Nil) != (message == "") || !slices.EqualFunc(scans, wanted, slices.Equal) {
				t.Errorf("%s: want %q after the scans %v, have %q, %v after %v", what, message, wanted, have.Message, err, scans)
			}
			scans = nil
		}
		task = "of another queue"
		want("a task in another queue", "b", task, []string{"b"}, []string{"a", "c"})
		want("again", "b", task, []string{"b"}, []string{"a", "c"})
		task = ""
		want("all are empty", "b", "", []string{"b"}, []string{"a", "c"})
		wantOneSubscription(t, n)
		start := time.Now()
		want("the rest of asynq's round", "c", "")
		want("the rest of asynq's round", "a", "")
		if took := time.Since(start); took > 0 {
			t.Errorf("want one dequeue of a round held back, as the server may stop, have the others take %v", took)
		}
		time.AfterFunc(HoldFor/2, func() {
			if w := fetcher.Wants("a", true); !w.Waiter || len(w.Queues) > 0 {
				t.Errorf("all queues are empty: want it to want a waiter only, have %+v", w)
			}
			fetcher.Deliver(Task{Message: "waiter"})
		})
		want("they were empty", "b", "waiter")
		n.mu.Lock()
		gone := fetcher.state == gone
		n.mu.Unlock()
		if !gone {
			t.Error("want all its queues taken for empty while it runs the last task")
		}
		want("while it runs", "b", "")
	})
}

// Nothing is asked together if the servers of a connection may have different queues, or if nothing could
// end the wait.
func TestQueuesThatAreNotKnownAreNotAskedTogether(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Notifier){
		"other servers":  func(n *Notifier) { n.Serves(map[string]int{"a": 1, "b": 2}, false) },
		"another server": func(n *Notifier) { n.orders = []*priorities{newPriorities(map[string]int{"a": 1, "c": 1}, false)} },
		"no notifier":    func(n *Notifier) { n.connect = nil },
		"closed":         func(n *Notifier) { n.end() },
		"a Cluster":      func(n *Notifier) { n.asksTogether = false },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n, fetcher, _ := fetcherOfEmptyQueues(t)
				n.AskTogether()
				change(n)
				scans := 0
				_, err := fetcher.Dequeue(t.Context(), "b", func(...string) (Task, error) {
					scans++
					return Task{}, redis.Nil
				})
				if !errors.Is(err, redis.Nil) || scans != 1 {
					t.Errorf("want one scan and no task, have %d, %v", scans, err)
				}
			})
		})
	}
}
