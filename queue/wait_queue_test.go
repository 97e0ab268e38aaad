package queue_test

import (
	"cmp"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/queue"
)

// G5: waiters are served in the order in which they came to the lock.
func TestServedInOrderOfArrival(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		t.Helper()
		const waiters = 200
		st := newStage(t)
		for range 2 {
			b.serve(t, queue.ServerConfig{}, st.run)
		}
		holder := b.occupy(t, st)
		number := make(map[string]int)
		for n := 1; n <= waiters; n++ {
			number[b.enqueue(t, b.job(n))] = n
		}
		poll.Eventually(t, "all in line, and parked", func() bool {
			info, err := b.inspector.GetQueueInfo(b.queue)
			return err == nil && info.Retry == waiters && len(b.waiters(t)) == waiters
		})
		want := []int{0}
		for _, id := range b.waiters(t) {
			want = append(want, number[id])
		}
		holder.open()
		st.wantOrder(want...)
	})
}

// Tasks that wait for one resource, wherever its lock is, keep no worker, so they do not delay tasks on others.
func TestBusyResourceDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]lock.Store{"on Redis": nil, "elsewhere": newQueueless(locktest.NewMemory())} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const each = 60
			b, st, locker := setup(t), newStage(t), (*lock.Locker)(nil)
			if st.unfenced = store != nil; st.unfenced {
				locker = newLocker(t, store, lock.Config{})
			}
			release := b.holdBy(t, cmp.Or(locker, b.locker))
			var waiting, others []string
			for n := range each {
				waiting = append(waiting, b.enqueue(t, b.job(n)))
				others = append(others, b.enqueue(t, job{Res: b.resource + ":" + strconv.Itoa(n), N: 1000 + n}))
			}
			b.serve(t, queue.ServerConfig{Store: store, Asynq: asynq.Config{Concurrency: 3}}, st.run)
			start := time.Now()
			b.awaitGone(t, others...)
			wantSoon(t, start, "want the others at once")
			poll.Eventually(t, "all the waiting tasks parked", func() bool { return b.stats(t).Retry == each })
			if have := len(st.order()); have != each {
				t.Errorf("runs: want %d, have %d", each, have)
			}
			release()
			b.awaitGone(t, waiting...)
		})
	}
}

// A program on the plain protocol excludes us. That program wakes nobody, so its lock is looked at once a
// second.
func TestForeignHolder(t *testing.T) {
	t.Parallel()
	b, st := setup(t), newStage(t)
	must(t, b.rdb.Set(t.Context(), b.lockKey(), "5c8d9a1f00", time.Minute).Err())
	b.serve(t, queue.ServerConfig{}, st.run)
	ids := b.park(t, 1, 2)
	for _, id := range ids {
		info := b.awaitState(t, id, asynq.TaskStateRetry)
		if info.LastErr != "waits for "+b.resource+", held by another program" {
			t.Errorf("reason: have %q", info.LastErr)
		}
	}
	if b.value(t) != "5c8d9a1f00" || len(st.order()) != 0 {
		t.Errorf("want the foreign value in place and nobody run, have %q, %v", b.value(t), st.order())
	}
	must(t, b.rdb.Del(t.Context(), b.lockKey()).Err())
	start := time.Now()
	b.awaitGone(t, ids...)
	wantSoon(t, start, "want them to come after a second or so")
	st.wantOrder(1, 2)
}

// A task whose Deadline passes while it waits is archived at once, as no retry could run it. The
// task is taken out of its line.
func TestDeadlineWhileParked(t *testing.T) {
	t.Parallel()
	b, st := setup(t), newStage(t)
	cfg := lock.Config{TTL: 20 * time.Second}
	holder := b.holdElsewhere(t, st, cfg)
	logs := newLogs(t)
	b.serve(t, queue.ServerConfig{Lock: cfg, Logger: logs.logger}, st.run)
	deadline := time.Now().Add(3 * time.Second).Truncate(time.Second)
	id := b.enqueue(t, b.job(1), queue.Options{Deadline: deadline, Retries: 3})
	b.awaitState(t, id, asynq.TaskStateRetry)
	b.wantWaiters(t, id)
	info := b.awaitState(t, id, asynq.TaskStateArchived)
	want := "its deadline passed while it waited for " + b.resource + ": context deadline exceeded: skip retry for the task"
	if info.LastErr != want || info.Retried != 0 || info.MaxRetry != 3 {
		t.Errorf("want it archived at once, with the reason %q, have %+v", want, info)
	}
	poll.Eventually(t, "a line in the log", func() bool { return len(logs.lines("its deadline passed", slog.LevelError)) > 0 })
	if archived := logs.lines("its deadline passed while it waited for "+b.resource+": context deadline exceeded", slog.LevelError); len(archived) != 1 {
		t.Errorf("want one line in the log that says so, have %q", archived)
	}
	poll.Eventually(t, "an empty line", func() bool { return len(b.waiters(t)) == 0 })
	holder.open()
	poll.Eventually(t, "a free lock", func() bool { return b.value(t) == "" })
	st.wantOrder(0)
}
