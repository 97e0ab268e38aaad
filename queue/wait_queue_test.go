package queue_test

import (
	"errors"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/lock"
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

// Tasks that wait for one resource keep no worker, so they do not delay tasks on others.
func TestBusyResourceDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	const each = 60
	b, st := setup(t), newStage(t)
	holder := b.holdElsewhere(t, st, lock.Config{})
	var waiting, others []string
	for n := range each {
		waiting = append(waiting, b.enqueue(t, b.job(n+1)))
		others = append(others, b.enqueue(t, job{Res: b.resource + ":" + strconv.Itoa(n), N: 1000 + n}))
	}
	b.serve(t, queue.ServerConfig{Asynq: asynq.Config{Concurrency: 3}}, st.run)
	b.awaitGone(t, others...)
	poll.Eventually(t, "all the waiting tasks parked", func() bool { return b.stats(t).Retry == each })
	if have := len(st.order()); have != each+1 {
		t.Errorf("runs: want %d, have %d", each+1, have)
	}
	holder.open()
	b.awaitGone(t, waiting...)
}

// A task that finds its lock busy again keeps its ticket, and so its position.
func TestParkedAgainKeepsItsPlace(t *testing.T) {
	t.Parallel()
	b, st := setup(t), newStage(t)
	j := &journal{}
	holder := b.holdElsewhere(t, st, lock.Config{})
	b.serve(t, queue.ServerConfig{Observe: j.observe}, st.run)
	ids := b.park(t, 1, 2, 3)
	if err := b.inspector.RunTask(b.queue, ids[0]); err != nil {
		t.Fatal(err)
	}
	if e := j.await(t, queue.EventParked, ids[0], 2); e.Parked != 2 {
		t.Errorf("parked: want 2, have %d", e.Parked)
	}
	b.wantWaiters(t, ids...)
	holder.open()
	st.wantOrder(0, 1, 2, 3)
}

// A holder died, and its lock was deleted before it expired. A newcomer does not overtake the
// waiters, and has the first of them run at once.
func TestFreeLockBelongsToTheHead(t *testing.T) {
	t.Parallel()
	b, st := setup(t), newStage(t)
	lease, err := b.locker.Acquire(t.Context(), b.resource, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.serve(t, queue.ServerConfig{}, st.run)
	ids := b.park(t, 1, 2)
	// This does what an expiry does, without the wait.
	if err := b.rdb.Del(t.Context(), b.lockKey()).Err(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	ids = append(ids, b.enqueue(t, b.job(3)))
	b.awaitGone(t, ids...)
	st.wantOrder(1, 2, 3)
	if took := time.Since(start); took > prompt { // by itself the lock is looked at after its TTL
		t.Errorf("want the waiters called by the newcomer, have %v", took)
	}
	_ = lease.Release(t.Context()) // it is lost
}

// A program on the plain protocol excludes us. That program wakes nobody, so its lock is looked at once a
// second.
func TestForeignHolder(t *testing.T) {
	t.Parallel()
	b, st := setup(t), newStage(t)
	if err := b.rdb.Set(t.Context(), b.lockKey(), "5c8d9a1f00", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
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
	if err := b.rdb.Del(t.Context(), b.lockKey()).Err(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	b.awaitGone(t, ids...)
	if took := time.Since(start); took > prompt {
		t.Errorf("want them to come after a second or so, have %v", took)
	}
	st.wantOrder(1, 2)
}

// The plain protocol is excluded by us: SET NX finds the key taken.
func TestForeignProgramIsExcluded(t *testing.T) {
	t.Parallel()
	b, st := setup(t), newStage(t)
	holder := b.holdElsewhere(t, st, lock.Config{})
	if _, err := b.rdb.SetArgs(t.Context(), b.lockKey(), "5c8d9a1f00", redis.SetArgs{Mode: "NX"}).Result(); !errors.Is(err, redis.Nil) {
		t.Errorf("want the key taken, have %v", err)
	}
	holder.open()
	poll.Eventually(t, "a free lock", func() bool { return b.value(t) == "" })
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
