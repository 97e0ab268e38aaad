package queue_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// isFinish reports whether cmd ends an attempt whose handler has succeeded.
func isFinish(cmd redis.Cmder) bool { return isFinishWithoutLock(cmd) || isFinishWithLock(cmd) }

func isFinishWithoutLock(cmd redis.Cmder) bool {
	return hasKeys(cmd, ":t:", ":active", ":lease", ":completed", ":processed:", ":processed")
}

func isFinishWithLock(cmd redis.Cmder) bool {
	return hasKeys(cmd, ":t:", ":active", ":lease", ":completed", ":processed:", ":processed", "lock:", ":fence", ":queue", ":paused", ":released:")
}

// A task that does not have to wait takes one round trip: the step that finishes it takes the next.
func TestOneRoundTrip(t *testing.T) {
	t.Parallel()
	for name, guarded := range map[string]bool{"guarded": true, "unguarded": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// The server asks for its first tasks, and again when there are none left. A worker that comes
			// late for its task makes the server ask for some seconds.
			const tasks, most = 200, 30
			finishes, others := roundTrips(t, tasks, guarded)
			for tries := 1; others > most && tries < 3; tries++ {
				finishes, others = roundTrips(t, tasks, guarded)
			}
			if finishes > tasks+2 || others > most {
				t.Errorf("want %d tasks finished by a call each, and up to %d others, have %d and %d", tasks, most, finishes, others)
			}
		})
	}
}

// roundTrips runs tasks that do not have to wait. It returns how many calls finished one, and how many
// others there were.
func roundTrips(t *testing.T, tasks int, guarded bool) (finished, other int) {
	t.Helper()
	b, st := setupFast(t), newStage(t)
	st.unfenced = !guarded
	for n := range tasks {
		j := job{Res: fmt.Sprint(b.resource, n), N: n}
		if guarded {
			b.enqueue(t, j)
		} else {
			b.enqueuePlain(t, j)
		}
	}
	var finishes, others atomic.Int32
	p := &plain{
		config: asynq.Config{Concurrency: 3},
		onTasks: func(_ context.Context, cmd redis.Cmder, send func() error) error {
			if isDequeue(cmd) || hasKeys(cmd, ":active", ":lease", ":t:", ":processed:", ":processed") {
				others.Add(1)
			}
			return send()
		},
		onLocks: func(_ context.Context, cmd redis.Cmder, send func() error) error {
			switch {
			case isFinish(cmd):
				finishes.Add(1)
			case hasKeys(cmd, "lock:", ":fence", ":queue", ":paused", ":released:"):
				others.Add(1)
			}
			return send()
		},
	}
	p.serve(t, b, st)
	st.awaitRuns(tasks)
	poll.Eventually(t, "all to be done", func() bool { return b.stats(t).Processed == tasks })
	return int(finishes.Load()), int(others.Load())
}

// The answer to a finish is lost, and the client sends the call again. The second answer names the
// same next task. So each task runs once, and none waits for its recovery.
func TestFinishIsSentTwice(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		concurrency int
		resource    func(b *bundle, n int) string
	}{
		"free locks":           {10, func(b *bundle, n int) string { return fmt.Sprint(b.resource, n) }},
		"one lock":             {10, func(b *bundle, _ int) string { return b.resource }},
		"one lock, one worker": {1, func(b *bundle, _ int) string { return b.resource }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBothPaths(t, func(t *testing.T, b *bundle) {
				t.Helper()
				const tasks = 40
				st, j := newStage(t), &journal{}
				var ids []string
				for n := range tasks {
					ids = append(ids, b.enqueue(t, job{Res: tt.resource(b, n), N: n}, queue.Options{Retries: queue.NoRetries}))
				}
				p := &plain{config: asynq.Config{Concurrency: tt.concurrency}, guardConfig: queue.GuardConfig{Observe: j.observe}, onLocks: func(_ context.Context, cmd redis.Cmder, send func() error) error {
					if isFinish(cmd) {
						if err := send(); err != nil {
							return err
						}
					}
					return send()
				}}
				start := time.Now()
				p.serve(t, b, st)
				b.awaitGone(t, ids...)
				if took := time.Since(start); took > prompt {
					t.Errorf("want no task recovered, have all take %v", took)
				}
				if have := st.order(); len(have) != tasks {
					t.Errorf("want %d runs, have %v", tasks, have)
				}
				if lost := j.of(queue.EventLost, ""); len(lost) > 0 {
					t.Errorf("want no lock lost, have %d, the first %+v", len(lost), lost[0])
				}
				if info := b.stats(t); info.Processed != tasks || info.Failed != 0 || info.Size != 0 {
					t.Errorf("want %d processed, none failed, none left, have %+v", tasks, info)
				}
			})
		})
	}
}

// A server that ends does not ask for its prefetched task. The task is requeued at the head of its
// queue, and keeps its position in the wait queue. Its run learns the trace of the run before it.
func TestPrefetchedTaskIsRequeued(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ same, parked bool }{"same resource": {same: true}, "other resource": {}, "parked": {same: true, parked: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBothPaths(t, func(t *testing.T, b *bundle) {
				t.Helper()
				st := newStage(t)
				holder := st.hold(0)
				p := &plain{config: asynq.Config{Concurrency: 1, ShutdownTimeout: patience}}
				p.start(t, b, handlerOf(func(ctx context.Context, task job) error {
					if err := queue.SetTraceparent(ctx, trace); err != nil {
						t.Error(err)
					}
					return st.run(ctx, task)
				}))
				ids := []string{b.enqueue(t, b.job(0))}
				within(t, patience, "the holder", holder.entered)
				for n := 1; n <= 3; n++ {
					j := b.job(n)
					if !tt.same {
						j.Res += "." + fmt.Sprint(n)
					}
					ids = append(ids, b.enqueue(t, j))
				}
				if tt.parked {
					other := &plain{}
					other.start(t, b, handlerOf(st.run))
					for _, id := range ids[1:] {
						b.awaitState(t, id, asynq.TaskStateRetry)
					}
					other.stop(t)
				}
				ended := make(chan struct{})
				go func() {
					p.server.Shutdown()
					close(ended)
				}()
				poll.Eventually(t, "it to ask for no more tasks", func() bool { return len(p.logs.lines("Waiting for all workers")) == 1 })
				holder.open()
				within(t, patience, "the server to end", ended)
				p.stop(t)
				if info := b.stats(t); info.Active != 0 || info.Pending+info.Retry != 3 {
					t.Errorf("want none active, and three left, have %+v", info)
				}
				start, j := time.Now(), &journal{}
				b.serve(t, queue.ServerConfig{Asynq: asynq.Config{Concurrency: 1}, Guard: queue.GuardConfig{Observe: j.observe}}, st.run)
				b.awaitGone(t, ids...)
				if took := time.Since(start); took > prompt {
					t.Errorf("want them at once, have %v", took)
				}
				if tt.parked {
					if e := j.await(t, queue.EventAcquired, ids[1], 1); e.ReleasedBy != trace {
						t.Errorf("after a traced run: have %+v", e)
					}
				}
				if tt.same {
					st.wantOrder(0, 1, 2, 3)
				}
			})
		})
	}
}

// A released lock goes to the next waiter in the step of its release. The waiter needs no dequeue,
// and nobody is woken. Waiters run in the order of the wait queue, and their fences rise in that
// order.
func TestHandedOffToAnIdleWorker(t *testing.T) {
	t.Parallel()
	b, st, j := setupFast(t), newStage(t), &journal{}
	holder := b.holdElsewhere(t, st, longTimeout)
	var took, over atomic.Int32
	p := &plain{
		guardConfig: queue.GuardConfig{Observe: j.observe},
		onTasks: func(_ context.Context, cmd redis.Cmder, send func() error) error {
			err := send()
			if c, ok := cmd.(*redis.Cmd); ok && isDequeue(cmd) && err == nil && c.Val() != nil {
				took.Add(1)
			}
			return err
		},
		onLocks: func(_ context.Context, cmd redis.Cmder, send func() error) error {
			err := send()
			if isFinishWithLock(cmd) && err == nil {
				over.Add(1)
			}
			return err
		},
	}
	p.serve(t, b, st)
	const waiters = 50
	want := []int{0}
	for n := 1; n <= waiters; n++ {
		want = append(want, n)
	}
	ids := b.park(t, want[1:]...)
	took.Store(0)
	holder.open()
	b.awaitGone(t, ids...)
	st.wantOrder(want...)
	// The first waiter is woken, as the holder is elsewhere. The server may be at work on another
	// task at that time. The next waiter is then woken as well.
	if have := took.Load(); have > waiters/5 {
		t.Errorf("want hardly a dequeue, have %d for %d tasks", have, waiters)
	}
	if have := over.Load(); have < waiters*4/5 {
		t.Errorf("want the lock handed off, have %d times of %d", have, waiters)
	}
	var last int64
	for _, id := range ids {
		e := j.await(t, queue.EventAcquired, id, 1)
		if e.Fence <= last || e.HandOff <= 0 || e.HandOff > patience {
			t.Errorf("want a fence above %d and a hand-off, have %+v", last, e)
		}
		last = e.Fence
	}
	b.soonFree(t, b.resource)
}

// The answer to a finish with which a waiter has begun is lost: nobody knows of the waiter. The holder's
// task is done, and the waiter runs once its lock has ended.
func TestHandOffWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	b, st := setupFast(t), newStage(t)
	cfg := lock.Config{TTL: 2 * time.Second}
	holder := b.holdElsewhere(t, st, cfg)
	var lost atomic.Bool
	p := &plain{
		guardConfig: queue.GuardConfig{Lock: cfg},
		onLocks: func(_ context.Context, cmd redis.Cmder, send func() error) error {
			err := send()
			if c, ok := cmd.(*redis.Cmd); ok && isFinishWithLock(cmd) && err == nil && !lost.Swap(true) {
				c.SetVal(nil)
				return io.ErrUnexpectedEOF
			}
			return err
		},
	}
	p.serve(t, b, st)
	ids := b.park(t, 1, 2, 3)
	holder.open()
	poll.Eventually(t, "the answer lost", lost.Load)
	poll.Eventually(t, "the first to be done", func() bool { return b.state(ids[0]) == 0 })
	for _, id := range ids[1:] {
		b.silence(t, id)
	}
	b.awaitGone(t, ids...)
	runs := st.order()
	if slices.Sort(runs); !slices.Equal(runs, []int{0, 1, 2, 3}) {
		t.Errorf("want each to run once, have %v", runs)
	}
	b.soonFree(t, b.resource)
}

// A waiter is woken if its queue is not the holder's, or is one that the holder's server does not
// serve.
func TestHandOffAcrossQueues(t *testing.T) {
	t.Parallel()
	b, st := setup(t), newStage(t)
	other := b.queue + ".other"
	holder := b.holdElsewhere(t, st, lock.Config{})
	b.serve(t, queue.ServerConfig{}, st.run)
	b.serve(t, queue.ServerConfig{Asynq: asynq.Config{Queues: map[string]int{other: 1}}}, st.run)
	var ids []string
	for n := range 20 {
		if n%2 == 0 {
			ids = append(ids, b.park(t, n+1)...)
			continue
		}
		b.enqueue(t, b.job(n+1), queue.Options{Queue: other})
		poll.Eventually(t, "it to be in the wait queue", func() bool { return len(b.waiters(t)) == n+1 })
	}
	holder.open()
	b.awaitGone(t, ids...)
	want := make([]int, 21)
	for n := range want {
		want[n] = n
	}
	poll.Eventually(t, "all to run", func() bool { return len(st.order()) == len(want) })
	st.wantOrder(want...)
}

// The answer to a finish is lost for good. The task is done. Nobody knows of the next task. It runs
// once its lock has expired and its worker is taken for dead. No task runs twice.
func TestFinishWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	b, st := setup(t), newStage(t)
	cfg := lock.Config{TTL: 2 * time.Second}
	first := st.hold(0)
	ids := []string{b.enqueue(t, b.job(0)), b.enqueue(t, b.job(1)), b.enqueue(t, b.job(2))}
	var lost atomic.Bool
	p := &plain{
		guardConfig: queue.GuardConfig{Lock: cfg},
		onLocks: func(_ context.Context, cmd redis.Cmder, send func() error) error {
			err := send()
			if c, ok := cmd.(*redis.Cmd); ok && isFinish(cmd) && err == nil && !lost.Swap(true) {
				c.SetVal(nil)
				return io.ErrUnexpectedEOF
			}
			return err
		},
	}
	p.config.Concurrency = 1
	p.serve(t, b, st)
	within(t, patience, "the first", first.entered)
	first.open()
	poll.Eventually(t, "the answer lost", lost.Load)
	b.awaitGone(t, ids[0])
	b.silence(t, ids[1])
	b.awaitGone(t, ids...)
	if have := len(st.order()); have != 3 {
		t.Errorf("want each to run once, have %v", st.order())
	}
	b.soonFree(t, b.resource)
}
