package queue_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// take holds the bundle's resource for the test, renewed until it is let go.
func (b *bundle) take(t *testing.T, cfg lock.Config) *lease.Lease {
	t.Helper()
	client, err := lease.New(lock.Redis(b.rdb), lease.Config(cfg))
	if err != nil {
		t.Fatal(err)
	}
	held, err := client.Acquire(t.Context(), lease.Request{Resource: b.resource})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = held.Release(context.Background()) })
	return held
}

// holdElsewhere returns with job 0, in a server and queue of its own, holding the
// bundle's resource.
func (b *bundle) holdElsewhere(t *testing.T, st *stage, cfg lock.Config) *gate {
	t.Helper()
	elsewhere := b.queue + ".elsewhere"
	b.serve(t, queue.ServerConfig{Asynq: asynq.Config{Queues: map[string]int{elsewhere: 1}}, Guard: queue.GuardConfig{Lock: cfg}}, st.run)
	g := st.hold(0)
	b.enqueue(t, b.job(0), queue.Options{Queue: elsewhere})
	within(t, patience, "the holder", g.entered)
	return g
}

// park enqueues jobs one after the other, each of which must be parked.
func (b *bundle) park(t *testing.T, jobs ...int) []string {
	t.Helper()
	ids := make([]string, len(jobs))
	for i, n := range jobs {
		ids[i] = b.enqueue(t, b.job(n))
		b.awaitState(t, ids[i], asynq.TaskStateRetry)
	}
	return ids
}

// busyWorker returns with the one worker of a server in a handler, and how to
// let it go.
func (b *bundle) busyWorker(t *testing.T, st *stage) *gate {
	t.Helper()
	g := st.hold(-1)
	b.enqueue(t, job{Res: b.resource + ":other", N: -1})
	within(t, patience, "the worker to be busy", g.entered)
	return g
}

// A task that is woken does not wait behind a backlog: it goes to the head of pending. A task that
// its fallback time has put at the tail is moved there, too.
func TestWokenToTheHead(t *testing.T) {
	t.Parallel()
	for name, ownFallback := range map[string]bool{"from the retry set": false, "from the tail of pending": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const backlog = 2000
			b, st := setup(t), newStage(t)
			holder := b.holdElsewhere(t, st, longTimeout)
			b.serve(t, queue.ServerConfig{Asynq: asynq.Config{Concurrency: 1}}, st.run)
			id := b.park(t, 1)[0]
			worker := b.busyWorker(t, st)
			notes := slices.Repeat([]queue.Job{{Task: note{}, Options: &queue.Options{Queue: b.queue}}}, backlog)
			if _, err := b.client.EnqueueBatch(t.Context(), notes); err != nil {
				t.Fatal(err)
			}
			if ownFallback { // the inspector puts it there as asynq's forwarder would
				if err := b.inspector.RunTask(b.queue, id); err != nil {
					t.Fatal(err)
				}
			}
			holder.open()
			poll.Eventually(t, "the called task at the head of pending", func() bool {
				last, err := b.rdb.LIndex(t.Context(), b.key("pending"), -1).Result()
				return err == nil && last == id
			})
			if n := b.rdb.LLen(t.Context(), b.key("pending")).Val(); n != backlog+1 {
				t.Errorf("pending: want %d, have %d", backlog+1, n)
			}
			worker.open()
			st.wantOrder(0, -1, 1)
		})
	}
}

// No wake-up is needed. The sweeper makes up for one that is lost, also if the task was taken out
// of its wait queue.
func TestLostWake(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(redis.Cmder) error{
		"the wake-up fails": func(redis.Cmder) error { return errors.New("lost on its way") },
		"the caller believes that it called": func(cmd redis.Cmder) error {
			cmd.(*redis.Cmd).SetVal("called") //nolint:errcheck,forcetypeassert // a script's
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, st := setupStepwise(t), newStage(t)
			const timeout = 300 * time.Millisecond
			var until atomic.Pointer[time.Time] // calls are lost, from the first on
			p := &plain{
				guardConfig: queue.GuardConfig{Lock: lock.Config{TTL: 3 * time.Second, HandoffTimeout: timeout}},
				onLocks: func(_ context.Context, cmd redis.Cmder, send func() error) error {
					end := time.Now().Add(timeout)
					if isWake(cmd) && (until.CompareAndSwap(nil, &end) || time.Now().Before(*until.Load())) {
						return lose(cmd)
					}
					return send()
				},
			}
			p.serve(t, b, st)
			holder := st.hold(0)
			b.enqueue(t, b.job(0))
			within(t, patience, "the holder", holder.entered)
			ids := b.park(t, 1)
			holder.open()
			start := time.Now()
			b.awaitGone(t, ids...)
			if took := time.Since(start); took > prompt { // its fallback time is in 1 h
				t.Errorf("want it called again, have %v", took)
			}
			st.wantOrder(0, 1)
		})
	}
}

// The releaser dies between its release and the wake-up. The waiter was not woken, and keeps its
// position. The sweeper, or the next task on arrival, goes on.
func TestReleaserDiesBeforeTheWake(t *testing.T) {
	t.Parallel()
	t.Run("sweeper", func(t *testing.T) {
		t.Parallel()
		b, st := setup(t), newStage(t)
		cfg := shortTimes
		cfg.HandoffTimeout = time.Second
		b.serve(t, queue.ServerConfig{Guard: queue.GuardConfig{Lock: cfg}}, st.run)
		lease := b.take(t, cfg)
		ids := b.park(t, 1)
		if _, err := lease.HandOff(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.wantWaiters(t, ids...)
		b.awaitGone(t, ids...)
	})
	t.Run("next on arrival", func(t *testing.T) {
		t.Parallel()
		b, st := setup(t), newStage(t)
		cfg := lock.Config{HandoffTimeout: 300 * time.Millisecond}
		b.serve(t, queue.ServerConfig{Guard: queue.GuardConfig{Lock: cfg}}, st.run)
		lease := b.take(t, cfg)
		ids := b.park(t, 1, 2)
		if _, err := lease.HandOff(t.Context()); err != nil {
			t.Fatal(err)
		}
		poll.Eventually(t, "the reservation to expire", func() bool { return b.value(t) == "" })
		start := time.Now()
		ids = append(ids, b.enqueue(t, b.job(3)))
		b.awaitGone(t, ids...)
		// The sweeper may come before the third does.
		if have := st.awaitRuns(3); !slices.Equal(have, []int{3, 1, 2}) && !slices.Equal(have, []int{1, 2, 3}) {
			t.Errorf("order: want the third first or last, have %v", have)
		}
		if took := time.Since(start); took > prompt {
			t.Errorf("want the waiters woken long before their fallback times, have %v", took)
		}
	})
}

// A waiter that was woken is in the wait queue no longer. If it comes too late, after
// another has taken the lock, it joins at the end.
func TestWokenButTooLate(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st, latch := newStage(t), newParkLatch()
		latch.used.Store(true)
		cfg := lock.Config{HandoffTimeout: 300 * time.Millisecond}
		holder := b.holdElsewhere(t, st, cfg)
		(&plain{onTasks: latch.tap(t)}).serve(t, b, st)
		ids := b.park(t, 1, 2, 3)
		latch.idle.Store(true)
		second := st.hold(4)
		holder.open()
		b.awaitState(t, ids[0], asynq.TaskStatePending)
		poll.Eventually(t, "the reservation to expire", func() bool { return b.value(t) == "" })
		b.enqueue(t, b.job(4), queue.Options{Queue: b.queue + ".elsewhere"})
		within(t, patience, "another to take the lock", second.entered)
		latch.idle.Store(false)
		b.awaitState(t, ids[0], asynq.TaskStateRetry)
		b.wantWaiters(t, ids...)
		second.open()
		st.wantOrder(0, 4, 1, 2, 3)
	})
}
