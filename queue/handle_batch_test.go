package queue_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/telemetry"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/queue"
)

// A crew is a server's handler of batches. Each batch waits in it until the test lets all of them go.
type crew struct {
	*bundle

	server  *queue.Server
	batches chan []int // the numbers of the tasks of each that has begun
	goes    chan struct{}
}

// serveBatches starts a server that works on so many jobs at once with fn.
func (b *bundle) serveBatches(most int, cfg queue.ServerConfig, fn func(context.Context, []*queue.BatchTask[job]) error) *crew {
	b.Helper()
	c := &crew{bundle: b, batches: make(chan []int, 10), goes: make(chan struct{})}
	cfg.Observe = c.observe
	c.server = b.newServer(cfg)
	queue.HandleBatch(c.server, most, func(ctx context.Context, batch []*queue.BatchTask[job]) error {
		c.batches <- numbers(batch)
		<-c.goes
		return fn(ctx, batch)
	})
	start(b, c.server)
	return c
}

// numbers returns those of the tasks of a batch.
func numbers(batch []*queue.BatchTask[job]) (all []int) {
	for _, t := range batch {
		all = append(all, t.Task.N)
	}
	return all
}

// line has so many jobs, numbered from 1 on, wait behind job 0, and lets them go. The last one has the options.
func (c *crew) line(n int, last ...queue.Options) (ids []string) {
	c.Helper()
	c.enqueue(c.job(0))
	c.want([]int{0})
	for i := 1; i <= n; i++ {
		var opts []queue.Options
		if i == n {
			opts = last
		}
		id := c.enqueue(c.job(i), opts...)
		c.await(queue.EventParked, id, 1)
		ids = append(ids, id)
	}
	close(c.goes)
	return ids
}

// want compares the batches that come next.
func (c *crew) want(want ...[]int) {
	c.Helper()
	for _, numbers := range want {
		have := within(c, patience, "a batch", c.batches)
		expect.That(c, slices.Equal(have, numbers), "want the batches %v, have %v for %v", want, have, numbers)
	}
}

// Those that wait for a resource are worked on together, in their order and as many as a batch may have, on each kind of store.
func TestHandleBatch(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(b *bundle, store lock.Store) {
		b.Helper()
		var at atomic.Int64
		c := b.serveBatches(3, queue.ServerConfig{Store: store, Asynq: asynq.Config{Concurrency: 2}}, func(ctx context.Context, batch []*queue.BatchTask[job]) error {
			expect.That(b, at.Add(1) <= 1, "want one batch of a resource at once")
			defer at.Add(-1)
			expect.That(b, store != nil || lock.Fence(ctx, b.resource) != 0, "want a fence")
			for _, task := range batch {
				expect.That(b, task.Info.Resource == b.resource && task.Info.ID != "", "have %+v", task.Info)
			}
			return nil
		})
		ids := c.line(5)
		c.want([]int{1, 2, 3}, []int{4, 5})
		for i, id := range ids {
			b.awaitGone(id)
			e := c.await(queue.EventAcquired, id, 1)
			batched := e.Via == queue.ViaBatch
			expect.That(b, (store != nil || batched == (i != 0 && i != 3)) && e.Waited > 0, "task %d: have %+v", i+1, e)
		}
		c.awaitBalance()
	})
}

// Each task of a batch has an outcome of its own: that of the handler, unless that has said another.
func TestOutcomesOfABatch(t *testing.T) {
	t.Parallel()
	const again, over = asynq.TaskStateRetry, asynq.TaskStateArchived
	boom := errors.New("boom")
	type row struct {
		handle func(batch []*queue.BatchTask[job]) error
		want   []asynq.TaskState // 0 for a task that is gone
	}
	eachOf(t, onOne, map[string]row{
		"all fail":  {func([]*queue.BatchTask[job]) error { return boom }, []asynq.TaskState{again, again, again}},
		"all panic": {func([]*queue.BatchTask[job]) error { panic("boom") }, []asynq.TaskState{again, again, again}},
		"all end":   {func([]*queue.BatchTask[job]) error { runtime.Goexit(); return nil }, []asynq.TaskState{again, again, again}},
		"each its own": {func(batch []*queue.BatchTask[job]) error {
			batch[0].End(boom)
			batch[1].End(queue.Permanent(boom))
			return nil
		}, []asynq.TaskState{again, over, 0}},
		"in another order": {func(batch []*queue.BatchTask[job]) error {
			slices.Reverse(batch)
			batch[0].End(queue.Permanent(boom))
			_ = slices.Delete(batch, 0, 1)
			return nil
		}, []asynq.TaskState{0, 0, over}},
		"panic after an end": {func(batch []*queue.BatchTask[job]) error {
			batch[1].End(nil)
			panic("boom")
		}, []asynq.TaskState{again, 0, again}},
		"but one": {func(batch []*queue.BatchTask[job]) error {
			batch[1].End(boom)
			batch[1].End(nil)
			return boom
		}, []asynq.TaskState{again, 0, again}},
	}, func(b *bundle, tt row) {
		cfg := queue.ServerConfig{Asynq: asynq.Config{RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Hour }}}
		c := b.serveBatches(10, cfg, func(_ context.Context, batch []*queue.BatchTask[job]) error {
			if len(batch) == 1 {
				return nil
			}
			return tt.handle(batch)
		})
		ids := c.line(3)
		c.want([]int{1, 2, 3})
		c.awaitBalance()
		for i, id := range ids {
			if tt.want[i] == 0 {
				b.awaitGone(id)
			} else if info := b.info(id); info.State != tt.want[i] {
				b.Errorf("task %d: want %v, have %+v", i+1, tt.want[i], info)
			}
		}
		b.soonFree(b.resource)
	})
}

// A task that fails in a batch, and is to hold its line, is the next to run. Those behind it are put back, and run after it.
func TestABatchHoldsItsLine(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.serveBatches(3, queue.ServerConfig{
		Policies: map[string]queue.Policy{job{}.Kind(): {OnFailure: queue.OnFailureHold}},
		Asynq:    asynq.Config{RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Millisecond }},
	}, func(_ context.Context, batch []*queue.BatchTask[job]) error {
		failed := false
		for _, task := range batch {
			expect.That(t, task.Info.Retried <= 0 || task.Task.N == 2, "want no retry used of %d, have %d", task.Task.N, task.Info.Retried)
			if failed {
				task.PutBack()
			} else if task.Task.N == 2 && task.Info.Retried == 0 {
				task.End(errors.New("boom"))
				failed = true
			}
		}
		return nil
	})
	ids := c.line(5)
	c.want([]int{1, 2, 3}, []int{2, 3, 4})
	c.awaitBalance()
	for i, want := range []string{telemetry.Done, telemetry.Failed, telemetry.Snoozed} {
		expect.Equal(t, "outcome of the first run of task "+strconv.Itoa(i+1), c.outcome(ids[i]), want)
	}
}

// The lock of a batch is lost: all its tasks come again in their order, and use no retry.
func TestABatchLosesItsLock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var once sync.Once
	c := b.serveBatches(3, queue.ServerConfig{Lock: shortTimes}, func(ctx context.Context, batch []*queue.BatchTask[job]) error {
		for _, task := range batch {
			expect.That(t, task.Info.Retried == 0, "want no retry used, have %+v", task.Info)
		}
		if len(batch) == 3 {
			once.Do(func() {
				expect.That(t, b.rdb.Del(ctx, b.lockKey()).Err() == nil, "want the lock deleted")
				<-ctx.Done()
				expect.That(t, errors.Is(context.Cause(ctx), lock.ErrLost), "want the lock lost, have %v", context.Cause(ctx))
			})
		}
		return ctx.Err()
	})
	ids := c.line(3)
	b.awaitGone(ids...)
	for _, id := range ids {
		c.await(queue.EventLost, id, 1)
	}
	c.awaitBalance()
}

// An operator takes the lock of a batch. Each of its tasks has had the fence of that lock, and is told who did that.
func TestRevokeABatch(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bundle) {
		s := b.newServer(queue.ServerConfig{Lock: longLease, Observe: b.observe})
		c := &crew{bundle: b, server: s, batches: make(chan []int, 10), goes: make(chan struct{})}
		s.Use(func(next asynq.Handler) asynq.Handler {
			return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
				expect.That(b, lock.Fence(ctx, b.resource) > 0, "want middleware to see a fence")
				return next.ProcessTask(ctx, t)
			})
		})
		var once sync.Once
		queue.HandleBatch(s, 3, func(ctx context.Context, batch []*queue.BatchTask[job]) error {
			c.batches <- numbers(batch)
			<-c.goes
			if len(batch) == 3 {
				once.Do(func() {
					b.revoke() //nolint:contextcheck // an operator does it
					<-ctx.Done()
				})
			}
			return ctx.Err()
		})
		start(b, s)
		ids := c.line(3)
		fence := c.await(queue.EventAcquired, ids[0], 1).Fence
		for _, id := range ids {
			e := c.await(queue.EventLost, id, 1)
			expect.That(b, e.Fence == fence && fence > 0, "want the fence %d, have %+v", fence, e)
			expect.That(b, e.Err != nil && strings.Contains(e.Err.Error(), "alice released it: it is stuck"), "want who did it, have %v", e.Err)
		}
		b.awaitGone(ids...)
		c.awaitBalance()
	})
}

// The lock of a batch is on an external store, and is lost unnoticed: no task has succeeded, not even one that the handler has ended.
func TestABatchLosesItsLockElsewhere(t *testing.T) {
	t.Parallel()
	b, memory := setup(t), locktest.NewMemory()
	var once sync.Once
	c := b.serveBatches(3, queue.ServerConfig{Store: memory, Lock: shortTimes}, func(_ context.Context, batch []*queue.BatchTask[job]) error {
		if len(batch) == 3 {
			once.Do(func() { //nolint:contextcheck // another process takes it
				batch[1].End(nil)
				b.takeAway(memory)
			})
		}
		return nil
	})
	ids := c.line(3)
	b.awaitGone(ids...)
	for _, id := range ids {
		c.await(queue.EventLost, id, 1)
	}
}

// The context of a batch ends with the first timeout of its tasks, and if one of them is canceled.
func TestContextOfABatch(t *testing.T) {
	t.Parallel()
	type row struct {
		cause   error
		timeout time.Duration // of the last one
	}
	ends := map[string]row{"timeout": {context.DeadlineExceeded, time.Second}, "canceled": {context.Canceled, 0}}
	eachOf(t, onOne, ends, func(b *bundle, tt row) {
		contexts := make(chan context.Context, 1)
		c := b.serveBatches(3, queue.ServerConfig{}, func(ctx context.Context, batch []*queue.BatchTask[job]) error {
			if len(batch) == 1 {
				return nil
			}
			contexts <- ctx
			<-ctx.Done()
			return queue.Permanent(ctx.Err())
		})
		ids := c.line(3, queue.Options{Timeout: tt.timeout})
		ctx := within(b, patience, "the batch", contexts)
		if tt.timeout == 0 {
			expect.Eventually(b, "the end", func() bool {
				expect.OK(b, b.inspector.CancelProcessing(ids[2]))
				return ctx.Err() != nil
			})
		}
		within(b, patience, "the end of the context", ctx.Done())
		expect.That(b, errors.Is(ctx.Err(), tt.cause), "want %v, have %v", tt.cause, ctx.Err())
		c.awaitBalance()
		for _, id := range ids {
			expect.Equal(b, "state", b.info(id).State, asynq.TaskStateArchived)
		}
	})
}

// A server that shuts down puts the tasks of a batch back, and another one takes them up in their order, once it has a slot.
func TestABatchAtShutdown(t *testing.T) {
	t.Parallel()
	b, batches := setup(t), make(chan []int, 10)
	first := b.serveBatches(3, queue.ServerConfig{Asynq: asynq.Config{ShutdownTimeout: time.Millisecond}}, func(ctx context.Context, batch []*queue.BatchTask[job]) error {
		if len(batch) == 3 {
			<-ctx.Done()
		}
		return ctx.Err()
	})
	ids := first.line(4)
	first.want([]int{1, 2, 3})
	second := b.newServer(queue.ServerConfig{Observe: first.observe, Asynq: asynq.Config{Concurrency: 1, Queues: map[string]int{b.queue: 1, b.queue + "-2": 1}}})
	busy, leaves := make(chan struct{}), make(chan struct{})
	queue.HandleBatch(second, 3, func(_ context.Context, batch []*queue.BatchTask[job]) error {
		if batch[0].Task.N == -1 {
			close(busy)
			<-leaves
			return nil
		}
		batches <- numbers(batch)
		return nil
	})
	start(t, second)
	b.enqueue(job{b.resource + "-2", -1}, queue.Options{Queue: b.queue + "-2"})
	within(t, patience, "the other task", busy)
	shutdown(t, first.server)
	close(leaves)
	for _, want := range [][]int{{1, 2, 3}, {4}} {
		have := within(t, patience, "the rest", batches)
		expect.That(t, slices.Equal(have, want), "want %v, have %v", want, have)
	}
	first.awaitBalance()
	for _, id := range ids[:3] {
		expect.Equal(t, "outcome of the first run", b.outcome(id), telemetry.Snoozed)
	}
}

// outcome returns that of the first run of a guarded task, as metrics have it.
func (b *bundle) outcome(id string) string {
	b.Helper()
	return telemetry.Outcome(b.await(queue.EventReleased, id, 1).Err, false)
}

func TestHandleBatchPanics(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.newServer(queue.ServerConfig{})
	t.Cleanup(func() { shutdown(t, s) })
	fn := func(context.Context, []*queue.BatchTask[job]) error { return nil }
	for want, call := range map[string]func(){
		"queue: Handle: " + job{}.Kind() + ": the handler is nil":   func() { queue.HandleBatch[job](s, 2, nil) },
		"queue: HandleBatch: want 2 to 100 tasks at most, have 1":   func() { queue.HandleBatch(s, 1, fn) },
		"queue: HandleBatch: want 2 to 100 tasks at most, have 101": func() { queue.HandleBatch(s, 101, fn) },
		"queue: Handle: " + job{}.Kind() + ": the server is nil":    func() { queue.HandleBatch(nil, 2, fn) },
		"queue: Handle: " + job{}.Kind() + " has a handler already": func() { queue.HandleBatch(s, 2, fn); queue.HandleBatch(s, 2, fn) },
	} {
		expect.Equal(t, "panic", panicOf(call), want)
	}
}
