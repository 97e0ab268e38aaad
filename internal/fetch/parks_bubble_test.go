package fetch

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// A scan of these tests takes so long.
const scanTime = 3 * time.Millisecond

// inCrowd runs a test in a bubble with a fetcher of the queues a, b and c. Each scan of a parks tasks, and
// more are left. What the others have is what scan says of them. scans counts how often each was asked.
func inCrowd(t *testing.T, run func(n *Notifier, f *Fetcher, scans map[string]int, ask func(scan Scan) (Task, error))) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n, f, _ := fetcherOfEmptyQueues(t)
		n.AskTogether()
		scans := make(map[string]int)
		run(n, f, scans, func(scan Scan) (Task, error) {
			return f.Dequeue(t.Context(), "a", func(queues ...string) (Task, error) {
				time.Sleep(scanTime)
				for _, queue := range queues {
					scans[queue]++
					if queue == "a" {
						return Task{Left: 1}, redis.Nil
					}
					if task, err := scan(queue); err == nil {
						return task, nil
					}
				}
				return Task{}, redis.Nil
			})
		})
	})
}

func scanNone(...string) (Task, error) { return Task{}, redis.Nil }

// While scans only park tasks, they follow each other: asynq would sleep in between. After 100 ms asynq gets
// an answer, as it may be about to stop.
func TestScansThatParkFollowEachOther(t *testing.T) {
	t.Parallel()
	inCrowd(t, func(n *Notifier, _ *Fetcher, scans map[string]int, ask func(Scan) (Task, error)) {
		n.orders = []*priorities{newPriorities(map[string]int{"a": 1}, false)}
		start := time.Now()
		_, err := ask(scanNone)
		took := time.Since(start)
		if !errors.Is(err, redis.Nil) || took < parksFor || took > parksFor+2*scanTime || scans["a"] != int(took/scanTime) {
			t.Errorf("want scans one after the other for %v and no task, have %v in %v, %v", parksFor, scans, took, err)
		}
	})
}

// Between two scans that only park tasks, a prefetched task is claimed; and the next waiter of a lock is
// wanted, although the last answer was that there is no task. Nothing is wanted during the first scan, as
// nobody knows yet whether Redis answers it.
func TestPrefetchedTaskIsClaimedBetweenScansThatPark(t *testing.T) {
	t.Parallel()
	inCrowd(t, func(_ *Notifier, f *Fetcher, _ map[string]int, ask func(Scan) (Task, error)) {
		if _, err := ask(scanNone); !errors.Is(err, redis.Nil) {
			t.Fatalf("want no task, have %v", err)
		}
		time.Sleep(5 * time.Millisecond) // as asynq does at least
		time.AfterFunc(scanTime/2, func() {
			if w := f.Wants("a", true); w.Waiter || len(w.Queues) > 0 {
				t.Errorf("the first scan: want it to want nothing, have %+v", w)
			}
		})
		time.AfterFunc(50*time.Millisecond, func() {
			if w := f.Wants("a", true); len(w.Queues) == 0 {
				t.Errorf("want it to want a task, have %+v", w)
			}
			f.Deliver(Task{Message: "prefetched"})
		})
		start := time.Now()
		task, err := ask(scanNone)
		if took := time.Since(start); err != nil || task.Message != "prefetched" || took > 50*time.Millisecond+3*scanTime {
			t.Errorf("want the prefetched task after 50 ms, have %q after %v, %v", task.Message, took, err)
		}
	})
}

// While the tasks of one queue are parked, the others get their turn.
func TestOtherQueuesGetTheirTurnAmongScansThatPark(t *testing.T) {
	t.Parallel()
	inCrowd(t, func(_ *Notifier, _ *Fetcher, scans map[string]int, ask func(Scan) (Task, error)) {
		task, err := ask(func(queues ...string) (Task, error) { return Task{Message: queues[0]}, nil })
		if err != nil || task.Message == "" {
			t.Errorf("want a task of another queue, have none after the scans %v, %v", scans, err)
		}
	})
}

// If the fetcher does not choose the queues, only the one that asynq has asked is scanned.
func TestScansThatParkOfOneQueue(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Notifier){
		"another server": func(n *Notifier) { n.Serves(map[string]int{"a": 1}, false) },
		"no notifier":    func(n *Notifier) { n.connect = nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inCrowd(t, func(n *Notifier, _ *Fetcher, scans map[string]int, ask func(Scan) (Task, error)) {
				change(n)
				if _, err := ask(scanNone); !errors.Is(err, redis.Nil) || len(scans) != 1 || scans["a"] < 2 {
					t.Errorf("want several scans of the queue, have %v, %v", scans, err)
				}
			})
		})
	}
}

// A server that stops is answered at once.
func TestScansThatParkEndWithTheServer(t *testing.T) {
	t.Parallel()
	inCrowd(t, func(n *Notifier, _ *Fetcher, scans map[string]int, ask func(Scan) (Task, error)) {
		n.orders = []*priorities{newPriorities(map[string]int{"a": 1}, false)}
		time.AfterFunc(50*time.Millisecond, n.Close)
		start := time.Now()
		_, err := ask(scanNone)
		if took := time.Since(start); !errors.Is(err, redis.Nil) || took > 50*time.Millisecond+3*scanTime {
			t.Errorf("want no task after 50 ms, have %v after %v and %v", err, took, scans)
		}
	})
}

// asynq asks all queues of a round before it can stop. So the scans of all of them together follow each
// other for 100 ms, and each later one of the round is scanned once. Another round has its own 100 ms. The
// fetcher also learns all queues of the round, although tasks were parked in it.
func TestScansThatParkTakeOneRoundOfTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, f, _ := fetcherOfEmptyQueues(t)
		n.orders = nil // not known
		for range 2 {
			start := time.Now()
			for _, queue := range []string{"a", "b", "c"} {
				_, err := f.Dequeue(t.Context(), queue, func(queues ...string) (Task, error) {
					time.Sleep(scanTime)
					if queues[0] == "a" {
						return Task{}, redis.Nil
					}
					return Task{Left: 1}, redis.Nil
				})
				if !errors.Is(err, redis.Nil) {
					t.Fatalf("want no task, have %v", err)
				}
				time.Sleep(time.Millisecond) // until asynq asks the next queue
			}
			if took := time.Since(start); took < parksFor || took > parksFor+4*scanTime+3*time.Millisecond {
				t.Errorf("want a round of %v, have %v", parksFor, took)
			}
			time.Sleep(5 * time.Millisecond) // as asynq does at least
		}
		_, _ = f.Dequeue(t.Context(), "b", scanNone)
		if len(f.queues) != 3 {
			t.Errorf("want three queues known, have %q", f.queues)
		}
	})
}

// The time of the scans begins with the first that parks tasks: not while the dequeue is held back before.
func TestScansThatParkAfterAHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, f, ask := fetcherOfEmptyQueues(t)
		n.orders = []*priorities{newPriorities(map[string]int{"a": 1}, false)}
		ask("a")
		time.Sleep(5 * time.Millisecond) // as asynq does at least
		crowded := false
		time.AfterFunc(HoldFor/2, func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			crowded, f.queue = true, "a"
			if !f.to(notified) {
				t.Error("want the dequeue held back")
			}
		})
		scans := 0
		_, err := f.Dequeue(t.Context(), "a", func(...string) (Task, error) {
			if !crowded {
				return Task{}, redis.Nil
			}
			time.Sleep(scanTime)
			scans++
			return Task{Left: 1}, redis.Nil
		})
		if want := int(parksFor / scanTime); !errors.Is(err, redis.Nil) || scans < want {
			t.Errorf("want %d scans, have %d, %v", want, scans, err)
		}
	})
}
