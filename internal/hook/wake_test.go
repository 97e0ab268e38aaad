package hook_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/asynqredis"
)

// parked enqueues a task, parks it under ticket and returns its id.
func (f *fleet) parked(t *testing.T, w *worker, ticket int64, opts ...asynq.Option) string {
	t.Helper()
	id := f.enqueue(t, opts...)
	w.take(t, id).park(t, ticket)
	return id
}

// others enqueues n tasks and returns their ids, the next one first.
func (f *fleet) others(t *testing.T, n int) []string {
	t.Helper()
	var ids []string
	for range n {
		ids = append(ids, f.enqueue(t))
	}
	return ids
}

// wantPending fails the test unless these tasks are pending, the next one first.
func (f *fleet) wantPending(t *testing.T, want ...string) {
	t.Helper()
	if have := f.check(t).pending(); !slices.Equal(have, want) {
		t.Errorf("want %v pending, have %v", want, have)
	}
}

func TestWakeFromRetryToHeadOfPending(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, f *fleet) {
		t.Helper()
		w := f.worker(t)
		id := f.parked(t, w, 7)
		second := f.parked(t, w, 8)
		backlog := f.others(t, 3)
		before, began := f.info(t), time.Now()
		f.wake(t, id, 7, asynqredis.Woken)

		f.wantPending(t, append([]string{id}, backlog...)...)
		s := f.check(t)
		if have := s.places()[second]; !slices.Equal(have, []string{"retry"}) {
			t.Errorf("want the other left in retry, have it in %v", have)
		}
		if since := s.task(id)["pending_since"]; since < fmt.Sprint(began.UnixNano()) {
			t.Errorf("want it pending since now, have %s", since)
		}
		if have := f.task(t, id); have.State != asynq.TaskStatePending || have.LastErr != errWaiting.Error() || have.Retried != 0 {
			t.Errorf("want it pending with its reason, have %+v", have)
		}
		after := f.info(t)
		if after.Size != before.Size || after.Retry != before.Retry-1 || after.Pending != before.Pending+1 || after.ProcessedTotal != 0 {
			t.Errorf("want one moved from retry to pending, have %+v before, %+v after", before, after)
		}
		f.wake(t, id, 7, asynqredis.Woken) // a repeated call finds it on its way
		f.wantPending(t, append([]string{id}, backlog...)...)
		w.take(t, id).mustEnd(t, nil)
		f.wake(t, id, 7, asynqredis.Gone)
	})
}

// A wake also finds a task whose fallback time came first, so that the task waits at the tail.
func TestWakeFromTheTailOfPending(t *testing.T) {
	t.Parallel()
	for name, tail := range map[string]int{"last": 0, "not quite last": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onStores(t, func(t *testing.T, f *fleet) {
				t.Helper()
				w := f.worker(t)
				id := f.parked(t, w, 7)
				before := f.others(t, 3)
				f.runNow(t, id) // to the tail, as by its fallback time
				after := f.others(t, tail)
				f.wake(t, id, 7, asynqredis.Woken)
				f.wantPending(t, slices.Concat([]string{id}, before, after)...)
			})
		})
	}
}

// A wake searches only the last thousand of a long queue.
func TestWakeSearchesABoundedTail(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, f *fleet) {
		t.Helper()
		ctx, key := t.Context(), f.prefix()+"pending"
		w := f.worker(t)
		id := f.parked(t, w, 7)
		first := f.others(t, 1)[0]
		f.runNow(t, id)
		fill := func(n int) {
			must(t, f.rdb.LPush(ctx, key, strings.Split(strings.Repeat("x", n), "")).Err())
		}
		fill(1000)
		f.wake(t, id, 7, asynqredis.Woken)
		if have := f.rdb.LIndex(ctx, key, -1).Val(); have != first {
			t.Errorf("want it left where it is, 1001st from the tail, have %s at the head", have)
		}
		must(t, f.rdb.LPop(ctx, key).Err())
		f.wake(t, id, 7, asynqredis.Woken)
		if have := f.rdb.LIndex(ctx, key, -1).Val(); have != id {
			t.Errorf("want it, 1000th from the tail, at the head, have %s there", have)
		}
		if n, want := f.rdb.LLen(ctx, key).Val(), int64(1001); n != want {
			t.Errorf("want %d pending, have %d", want, n)
		}
	})
}

// The wake may come between the busy lock and the parking.
func TestWakeOfAnActiveTaskTakesEffectWhenItParks(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, f *fleet) {
		t.Helper()
		w := f.worker(t)
		id := f.enqueue(t, asynq.MaxRetry(0))
		a := w.take(t, id)
		backlog := f.others(t, 2)
		before := f.check(t)
		f.wake(t, id, 7, asynqredis.Marked)
		before.task(id)["siding_woken"] = "1"
		f.unchanged(t, before)
		f.wake(t, id, 7, asynqredis.Marked)
		began := time.Now()
		a.park(t, 7)

		f.wantPending(t, append([]string{id}, backlog...)...)
		task := f.check(t).task(id)
		if task["siding_parked"] != "1" || task["pending_since"] < fmt.Sprint(began.UnixNano()) {
			t.Errorf("want it parked once and pending since now, have %v", task)
		}
		if have := f.task(t, id); have.LastErr != errWaiting.Error() || have.Retried != 0 {
			t.Errorf("want its reason, and no retry used, have %+v", have)
		}
		if info := f.info(t); info.Processed+info.Failed+info.Retry+info.Archived != 0 {
			t.Errorf("want nothing counted, have %+v", info)
		}
		w.take(t, id).park(t, 7) // the wake is used up
		f.wantIn(t, id, "retry")
	})
}

// A task comes also if it waits under another ticket than the one of the wake. The ticket of an
// attempt that was taken for dead may be the one in the wait queue.
func TestWakeOfAnActiveTaskCountsUnderAnyTicket(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, f *fleet) {
		t.Helper()
		w := f.worker(t)
		id := f.enqueue(t)
		a := w.take(t, id)
		f.wake(t, id, 7, asynqredis.Marked)
		f.wake(t, id, 6, asynqredis.Marked)
		a.park(t, 6)
		f.wantPending(t, id)
		a = w.take(t, id)
		f.wake(t, id, 6, asynqredis.Marked)
		a.park(t, 7)
		f.wantPending(t, id)
	})
}

// A waker of an active task tries again until the task has parked. The task then waits at the head
// of pending for a free worker: it was woken, and is not gone.
func TestWakeAgainAfterAMarkedTaskHasParked(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, f *fleet) {
		t.Helper()
		w := f.worker(t)
		id := f.enqueue(t)
		a := w.take(t, id)
		backlog := f.others(t, 2)
		f.wake(t, id, 7, asynqredis.Marked)
		a.park(t, 7)
		f.wake(t, id, 7, asynqredis.Woken)
		f.wantPending(t, append([]string{id}, backlog...)...)
		f.wake(t, id, 6, asynqredis.Gone)
	})
}

// A task that is parked in no wait queue waits for its fallback time, whatever wakes came.
func TestParkWithoutTicketIgnoresAWake(t *testing.T) {
	t.Parallel()
	for _, woken := range []int64{0, 7} {
		for where, store := range stores() {
			t.Run(fmt.Sprintf("%s, woken under %d", where, woken), func(t *testing.T) {
				t.Parallel()
				f := store(t)
				w := f.worker(t)
				id := f.enqueue(t)
				a := w.take(t, id)
				f.wake(t, id, woken, asynqredis.Marked)
				a.park(t, 0)
				f.wantIn(t, id, "retry")
				f.wake(t, id, woken, asynqredis.Gone)
			})
		}
	}
}

func TestWakeLeavesAPausedQueueAlone(t *testing.T) {
	t.Parallel()
	for name, move := range map[string]func(t *testing.T, f *fleet, w *worker) (id string){
		"in retry":   func(t *testing.T, f *fleet, w *worker) string { t.Helper(); return f.parked(t, w, 7) },
		"in pending": func(t *testing.T, f *fleet, w *worker) string { t.Helper(); return f.ran(t, w) },
		"active":     func(t *testing.T, f *fleet, w *worker) string { t.Helper(); return w.take(t, f.enqueue(t)).id },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onStores(t, func(t *testing.T, f *fleet) {
				t.Helper()
				id := move(t, f, f.worker(t))
				f.others(t, 1)
				must(t, f.inspector.PauseQueue(f.queue))
				before := f.check(t)
				f.wake(t, id, 7, asynqredis.Paused)
				f.unchanged(t, before)
			})
		})
	}
}

// ran returns a task that was parked under ticket 7 and whose time has come.
func (f *fleet) ran(t *testing.T, w *worker) string {
	t.Helper()
	id := f.parked(t, w, 7)
	f.runNow(t, id)
	return id
}

// A wake moves no task that does not wait under its ticket, and creates nothing.
func TestWakeOfWhatDoesNotWait(t *testing.T) {
	t.Parallel()
	for name, move := range map[string]func(t *testing.T, f *fleet, w *worker) (id string){
		"never there": func(t *testing.T, f *fleet, _ *worker) string {
			t.Helper()
			f.enqueue(t)
			return "nobody"
		},
		"deleted": func(t *testing.T, f *fleet, w *worker) string {
			t.Helper()
			id := f.parked(t, w, 7)
			must(t, f.inspector.DeleteTask(f.queue, id))
			return id
		},
		"archived while parked": func(t *testing.T, f *fleet, w *worker) string {
			t.Helper()
			id := f.parked(t, w, 7)
			must(t, f.inspector.ArchiveTask(f.queue, id))
			return id
		},
		"archived while pending": func(t *testing.T, f *fleet, w *worker) string {
			t.Helper()
			id := f.ran(t, w)
			must(t, f.inspector.ArchiveTask(f.queue, id))
			return id
		},
		"archived for its own failure": func(t *testing.T, f *fleet, w *worker) string {
			t.Helper()
			id := f.parked(t, w, 7, asynq.MaxRetry(0))
			f.runNow(t, id)
			w.take(t, id).mustEnd(t, errOwn)
			return id
		},
		"completed": func(t *testing.T, f *fleet, w *worker) string {
			t.Helper()
			id := f.parked(t, w, 7, asynq.Retention(time.Hour))
			f.runNow(t, id)
			w.take(t, id).mustEnd(t, nil)
			return id
		},
		"done": func(t *testing.T, f *fleet, w *worker) string {
			t.Helper()
			id := f.ran(t, w)
			w.take(t, id).mustEnd(t, nil)
			return id
		},
		"scheduled": func(t *testing.T, f *fleet, _ *worker) string {
			t.Helper()
			return f.enqueue(t, asynq.ProcessIn(time.Hour))
		},
		"pending": func(t *testing.T, f *fleet, _ *worker) string { t.Helper(); return f.enqueue(t) },
		"in its own back-off": func(t *testing.T, f *fleet, w *worker) string {
			t.Helper()
			id := f.enqueue(t)
			w.take(t, id).mustEnd(t, errOwn)
			return id
		},
		"in its own back-off after a parking": func(t *testing.T, f *fleet, w *worker) string {
			t.Helper()
			id := f.ran(t, w)
			w.take(t, id).mustEnd(t, errOwn)
			return id
		},
		"in its own back-off, on a server without the hook": func(t *testing.T, f *fleet, w *worker) string {
			t.Helper()
			id := f.waits(t, w, "lock:a", 7) // it keeps its ticket
			f.runNow(t, id)
			f.plain(t).take(t, id).mustEnd(t, errOwn)
			if waiting, _, err := asynqredis.AllWaiting(t.Context(), f.rdb, f.queue, "0"); len(waiting) != 0 || err != nil {
				t.Errorf("want none listed that waits, have %v, %v", waiting, err)
			}
			return id
		},
		"in its own back-off, woken before": func(t *testing.T, f *fleet, w *worker) string {
			t.Helper()
			id := f.enqueue(t)
			a := w.take(t, id)
			f.wake(t, id, 7, asynqredis.Marked)
			a.mustEnd(t, errOwn)
			return id
		},
		"parked under another ticket": func(t *testing.T, f *fleet, w *worker) string { t.Helper(); return f.parked(t, w, 70) },
		"parked in no wait queue":     func(t *testing.T, f *fleet, w *worker) string { t.Helper(); return f.parked(t, w, 0) },
		"pending under another ticket": func(t *testing.T, f *fleet, w *worker) string {
			t.Helper()
			id := f.parked(t, w, 70)
			f.runNow(t, id)
			return id
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onStores(t, func(t *testing.T, f *fleet) {
				t.Helper()
				id := move(t, f, f.worker(t))
				f.others(t, 1)
				before := f.check(t)
				f.wake(t, id, 7, asynqredis.Gone)
				f.unchanged(t, before)
			})
		})
	}
}

// A wake makes neither the hash nor the retry set worse if the two do not agree.
func TestWakeNeedsBothHashAndRetrySet(t *testing.T) {
	t.Parallel()
	for name, disagree := range disagreements {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onStores(t, func(t *testing.T, f *fleet) {
				t.Helper()
				id := f.parked(t, f.worker(t), 7)
				must(t, disagree(t.Context(), f, "retry", id))
				before := f.read(t)
				f.wake(t, id, 7, asynqredis.Gone)
				f.same(t, before)
			})
		})
	}
}

func TestWakeReturnsTheErrorOfRedis(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	must(t, rdb.Close())
	have, err := asynqredis.Wake(t.Context(), rdb, "default", "task-1", 7)
	if err == nil || have != "" || !strings.HasPrefix(err.Error(), "asynqredis: wake task-1: ") {
		t.Errorf("want an error that names the task, have %q, %v", have, err)
	}
	if !errors.Is(err, redis.ErrClosed) {
		t.Errorf("want it to wrap %v, have %v", redis.ErrClosed, err)
	}
}
