package queue_test

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/queue"
)

// Tasks that wait for one resource, wherever its lock is, keep no worker, so they do not delay tasks on others.
func TestBusyResourceDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	stores := map[string]lock.Store{"on Redis": nil, "elsewhere": newQueueless(locktest.NewMemory())}
	eachOf(t, onOne, stores, func(b *bundle, store lock.Store) {
		const each = 60
		locker := b.locker
		if b.unfenced = store != nil; b.unfenced {
			locker = newLocker(b, store, lock.Config{})
		}
		release := b.holdBy(locker)
		var waiting, others []string
		for n := range each {
			waiting = append(waiting, b.enqueue(b.job(n)))
			others = append(others, b.enqueue(job{Res: b.resource + ":" + strconv.Itoa(n), N: 1000 + n}))
		}
		b.serve(queue.ServerConfig{Store: store, Asynq: asynq.Config{Concurrency: 3}}, b.run)
		start := time.Now()
		b.awaitGone(others...)
		wantSoon(b, start, "want the others at once")
		expect.Eventually(b, "all the waiting tasks parked", func() bool { return b.stats().Retry == each })
		expect.Equal(b, "runs", len(b.order()), each)
		release()
		b.awaitGone(waiting...)
	})
}

// A program on the plain protocol excludes us. That program wakes nobody, so its lock is looked at once a
// second.
func TestForeignHolder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	expect.OK(t, b.rdb.Set(t.Context(), b.lockKey(), "5c8d9a1f00", time.Minute).Err())
	b.serve(queue.ServerConfig{}, b.run)
	ids := b.park(1, 2)
	for _, id := range ids {
		info := b.awaitState(id, asynq.TaskStateRetry)
		expect.That(t, info.LastErr == "waits for "+b.resource+", held by another program", "reason: have %q", info.LastErr)
	}
	expect.That(t, b.value() == "5c8d9a1f00" && len(b.order()) == 0,
		"want the foreign value in place and nobody run, have %q, %v", b.value(), b.order())
	expect.OK(t, b.rdb.Del(t.Context(), b.lockKey()).Err())
	start := time.Now()
	b.awaitGone(ids...)
	wantSoon(t, start, "want them to come after a second or so")
	b.wantOrder(1, 2)
}

// A task whose Deadline passes while it waits is archived at once, as no retry could run it. The
// task is taken out of its line.
func TestDeadlineWhileParked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cfg := lock.Config{TTL: 20 * time.Second}
	holder := b.holdElsewhere(cfg)
	logs := newLogs(t)
	b.serve(queue.ServerConfig{Lock: cfg, Logger: logs.logger}, b.run)
	deadline := time.Now().Add(3 * time.Second).Truncate(time.Second)
	id := b.enqueue(b.job(1), queue.Options{Deadline: deadline, Retries: 3})
	b.awaitState(id, asynq.TaskStateRetry)
	b.wantWaiters(id)
	info := b.awaitState(id, asynq.TaskStateArchived)
	want := "its deadline passed while it waited for " + b.resource + ": context deadline exceeded: skip retry for the task"
	expect.That(t, info.LastErr == want && info.Retried == 0 && info.MaxRetry == 3,
		"want it archived at once, with the reason %q, have %+v", want, info)
	logs.once(t, "its deadline passed while it waited for "+b.resource+": context deadline exceeded", slog.LevelError)
	expect.Eventually(t, "an empty line", func() bool { return len(b.waiters()) == 0 })
	holder.open()
	expect.Eventually(t, "a free lock", func() bool { return b.value() == "" })
	b.wantOrder(0)
}

// A backlog on one resource is served in the order in which it was enqueued. With lock and task on
// different masters, workers that take tasks at the same time may come to the free lock in another
// order; among those that wait they have the right order again.
func TestBacklogIsServedInOrder(t *testing.T) {
	t.Parallel()
	const tasks, workers = 300, 20
	onBoth(t, func(b *bundle) {
		allowed := 0 // places by which a task may be displaced
		if b.isCluster() {
			allowed = workers
		}
		ids := b.enqueueJobs(0, tasks-1)
		b.serve(queue.ServerConfig{Asynq: asynq.Config{Concurrency: workers}}, b.run)
		b.awaitGone(ids...)
		displaced, most := 0, 0
		for place, n := range b.order() {
			if by := max(place-n, n-place); by > 0 {
				displaced, most = displaced+1, max(most, by)
			}
		}
		b.Logf("%d of %d tasks displaced, by %d places at most", displaced, tasks, most)
		expect.That(b, most <= allowed, "want tasks displaced by %d places at most, have %d of them, by %d", allowed, displaced, most)
	})
}

// Many tasks of a queue of low priority wait for one resource. With strict priority a task of a queue of
// high priority still goes next.
func TestStrictPriorityBesideAHotResource(t *testing.T) {
	t.Parallel()
	for _, concurrency := range []int{1, 2, 5, 8} {
		t.Run(fmt.Sprintf("%d at once", concurrency), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			low := b.queue + ".low"
			const tasks, high, every = 120, 1000, 20
			for n := range tasks {
				b.enqueue(job{Res: b.resource + ":low", N: n}, queue.Options{Queue: low})
				if n%every == 0 {
					b.act(n, func() error {
						b.enqueue(job{Res: b.resource + ":high", N: high + n})
						return nil
					})
				}
			}
			b.serve(queue.ServerConfig{
				Asynq: asynq.Config{Queues: map[string]int{b.queue: 2, low: 1}, StrictPriority: true, Concurrency: concurrency},
			}, b.run)
			order := b.awaitRuns(tasks + tasks/every)
			at := make(map[int]int)
			for i, n := range order {
				at[n] = i
			}
			for n := 0; n < tasks; n += every {
				// Tasks that were taken before may start first.
				behind := at[high+n] - at[n]
				expect.That(t, behind <= 10+concurrency, "want %d soon after %d, have %d runs between", high+n, n, behind)
			}
		})
	}
}

// Tasks are taken in proportion to the weights of their queues. That holds if each is taken in the
// step in which another one ends.
func TestWeightsOfABacklog(t *testing.T) {
	t.Parallel()
	type row struct {
		concurrency int
		hot         bool
	}
	backlogs := map[string]row{"one at once": {1, false}, "4 at once": {4, false}, "one at once, hot": {1, true}}
	eachOf(t, onOne, backlogs, func(b *bundle, tt row) {
		weights := map[string]int{b.queue + ".a": 6, b.queue + ".b": 3, b.queue + ".c": 1}
		const tasks, counted = 300, 400
		for name := range weights {
			var jobs []queue.Job
			for n := range tasks {
				j := job{Res: fmt.Sprint(name, n), N: n}
				if tt.hot {
					j.Res = name
				}
				jobs = append(jobs, queue.Job{Task: j, Options: &queue.Options{Queue: name}})
			}
			expect.OK(b, expect.Err(b.client.EnqueueBatch(b.Context(), jobs)))
		}
		ran := make(chan string, 3*tasks)
		b.serve(queue.ServerConfig{Asynq: asynq.Config{Queues: weights, Concurrency: tt.concurrency}}, func(ctx context.Context, _ job) error {
			ran <- queue.InfoFrom(ctx).Queue
			return nil
		})
		have := make(map[string]int)
		for range counted {
			have[within(b, patience, "a task", ran)]++
		}
		for name, weight := range weights {
			// The tolerance is five times what chance makes of it, and the tasks that are parked at first.
			want := counted * weight / 10
			off := have[name] - want
			expect.That(b, off <= 55 && off >= -55, "%s: want some %d, have %v", name, want, have)
		}
	})
}
