package queue_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/queue"
)

// A crew is a server's handler of batches. Each batch waits in it until the test lets all of them go.
type crew struct {
	*bundle
	journal

	server  *queue.Server
	batches chan []int // the numbers of the tasks of each that has begun
	goes    chan struct{}
}

// serveBatches starts a server that works on so many jobs at once with fn.
func (b *bundle) serveBatches(t *testing.T, most int, cfg queue.ServerConfig, fn func(context.Context, []*queue.BatchTask[job]) error) *crew {
	t.Helper()
	c := &crew{bundle: b, batches: make(chan []int, 10), goes: make(chan struct{})}
	cfg.Observe = c.observe
	c.server = b.newServer(t, cfg)
	queue.HandleBatch(c.server, most, func(ctx context.Context, batch []*queue.BatchTask[job]) error {
		c.batches <- numbers(batch)
		<-c.goes
		return fn(ctx, batch)
	})
	start(t, c.server)
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
func (c *crew) line(t *testing.T, n int, last ...queue.Options) (ids []string) {
	t.Helper()
	c.enqueue(t, c.job(0))
	c.want(t, []int{0})
	for i := 1; i <= n; i++ {
		var opts []queue.Options
		if i == n {
			opts = last
		}
		id := c.enqueue(t, c.job(i), opts...)
		c.await(t, queue.EventParked, id, 1)
		ids = append(ids, id)
	}
	close(c.goes)
	return ids
}

// want compares the batches that come next.
func (c *crew) want(t *testing.T, want ...[]int) {
	t.Helper()
	for _, numbers := range want {
		if have := within(t, patience, "a batch", c.batches); !slices.Equal(have, numbers) {
			t.Errorf("want the batches %v, have %v for %v", want, have, numbers)
		}
	}
}

// Those that wait for a resource are worked on together, in their order and as many as a batch may have, on each kind of store.
func TestHandleBatch(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		setup func(*testing.T) *bundle
		store lock.Store
	}{
		"Redis":             {setup: setup},
		"Cluster":           {setup: setupCluster},
		"an external store": {setup: setup, store: newQueueless(locktest.NewMemory())},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := tt.setup(t)
			var at atomic.Int64
			c := b.serveBatches(t, 3, queue.ServerConfig{Store: tt.store, Asynq: asynq.Config{Concurrency: 2}}, func(ctx context.Context, batch []*queue.BatchTask[job]) error {
				if at.Add(1) > 1 {
					t.Error("want one batch of a resource at once")
				}
				defer at.Add(-1)
				if tt.store == nil && lock.Fence(ctx, b.resource) == 0 {
					t.Error("want a fence")
				}
				for _, task := range batch {
					if task.Info.Resource != b.resource || task.Info.ID == "" {
						t.Errorf("have %+v", task.Info)
					}
				}
				return nil
			})
			ids := c.line(t, 5)
			c.want(t, []int{1, 2, 3}, []int{4, 5})
			for i, id := range ids {
				b.awaitGone(t, id)
				e := c.await(t, queue.EventAcquired, id, 1)
				if batched := e.Via == queue.ViaBatch; tt.store == nil && batched != (i != 0 && i != 3) || e.Waited <= 0 {
					t.Errorf("task %d: have %+v", i+1, e)
				}
			}
			c.awaitBalance(t)
		})
	}
}

// Each task of a batch has an outcome of its own: that of the handler, unless that has said another.
func TestOutcomesOfABatch(t *testing.T) {
	t.Parallel()
	const again, over = asynq.TaskStateRetry, asynq.TaskStateArchived
	boom := errors.New("boom")
	for name, tt := range map[string]struct {
		handle func(batch []*queue.BatchTask[job]) error
		want   []asynq.TaskState // 0 for a task that is gone
	}{
		"all fail":  {func([]*queue.BatchTask[job]) error { return boom }, []asynq.TaskState{again, again, again}},
		"all panic": {func([]*queue.BatchTask[job]) error { panic("boom") }, []asynq.TaskState{again, again, again}},
		"all end":   {func([]*queue.BatchTask[job]) error { runtime.Goexit(); return nil }, []asynq.TaskState{again, again, again}},
		"each its own": {func(batch []*queue.BatchTask[job]) error {
			batch[0].End(boom)
			batch[1].End(queue.Permanent(boom))
			return nil
		}, []asynq.TaskState{again, over, 0}},
		"panic after an end": {func(batch []*queue.BatchTask[job]) error {
			batch[1].End(nil)
			panic("boom")
		}, []asynq.TaskState{again, 0, again}},
		"but one": {func(batch []*queue.BatchTask[job]) error {
			batch[1].End(boom)
			batch[1].End(nil)
			return boom
		}, []asynq.TaskState{again, 0, again}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			cfg := queue.ServerConfig{Asynq: asynq.Config{RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Hour }}}
			c := b.serveBatches(t, 10, cfg, func(_ context.Context, batch []*queue.BatchTask[job]) error {
				if len(batch) == 1 {
					return nil
				}
				return tt.handle(batch)
			})
			ids := c.line(t, 3)
			c.want(t, []int{1, 2, 3})
			c.awaitBalance(t)
			for i, id := range ids {
				if tt.want[i] == 0 {
					b.awaitGone(t, id)
				} else if info := b.info(t, id); info.State != tt.want[i] {
					t.Errorf("task %d: want %v, have %+v", i+1, tt.want[i], info)
				}
			}
			b.soonFree(t, b.resource)
		})
	}
}

// A task that fails in a batch, and is to hold its line, is the next to run. Those behind it are put back, and run after it.
func TestABatchHoldsItsLine(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.serveBatches(t, 3, queue.ServerConfig{
		Policies: map[string]queue.Policy{job{}.Kind(): {OnFailure: queue.OnFailureHold}},
		Asynq:    asynq.Config{RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Millisecond }},
	}, func(_ context.Context, batch []*queue.BatchTask[job]) error {
		failed := false
		for _, task := range batch {
			if task.Info.Retried > 0 && task.Task.N != 2 {
				t.Errorf("want no retry used of %d, have %d", task.Task.N, task.Info.Retried)
			}
			if failed {
				task.PutBack()
			} else if task.Task.N == 2 && task.Info.Retried == 0 {
				task.End(errors.New("boom"))
				failed = true
			}
		}
		return nil
	})
	c.line(t, 5)
	c.want(t, []int{1, 2, 3}, []int{2, 3, 4})
	c.awaitBalance(t)
}

// The lock of a batch is lost: all its tasks come again in their order, and use no retry.
func TestABatchLosesItsLock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var once sync.Once
	c := b.serveBatches(t, 3, queue.ServerConfig{Lock: shortTimes}, func(ctx context.Context, batch []*queue.BatchTask[job]) error {
		for _, task := range batch {
			if task.Info.Retried > 0 {
				t.Errorf("want no retry used, have %+v", task.Info)
			}
		}
		if len(batch) == 3 {
			once.Do(func() {
				if err := b.rdb.Del(ctx, b.lockKey()).Err(); err != nil {
					t.Error(err)
				}
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), lock.ErrLost) {
					t.Errorf("want the lock lost, have %v", context.Cause(ctx))
				}
			})
		}
		return ctx.Err()
	})
	ids := c.line(t, 3)
	b.awaitGone(t, ids...)
	for _, id := range ids {
		c.await(t, queue.EventLost, id, 1)
	}
	c.awaitBalance(t)
}

// The context of a batch ends with the first timeout of its tasks, and if one of them is canceled.
func TestContextOfABatch(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		cause   error
		timeout time.Duration // of the last one
	}{"timeout": {context.DeadlineExceeded, time.Second}, "canceled": {context.Canceled, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			contexts := make(chan context.Context, 1)
			c := b.serveBatches(t, 3, queue.ServerConfig{}, func(ctx context.Context, batch []*queue.BatchTask[job]) error {
				if len(batch) == 1 {
					return nil
				}
				contexts <- ctx
				<-ctx.Done()
				return queue.Permanent(ctx.Err())
			})
			ids := c.line(t, 3, queue.Options{Timeout: tt.timeout})
			ctx := within(t, patience, "the batch", contexts)
			if tt.timeout == 0 {
				poll.Eventually(t, "the end", func() bool {
					if err := b.inspector.CancelProcessing(ids[2]); err != nil {
						t.Error(err)
					}
					return ctx.Err() != nil
				})
			}
			within(t, patience, "the end of the context", ctx.Done())
			if !errors.Is(ctx.Err(), tt.cause) {
				t.Errorf("want %v, have %v", tt.cause, ctx.Err())
			}
			c.awaitBalance(t)
			for _, id := range ids {
				if info := b.info(t, id); info.State != asynq.TaskStateArchived {
					t.Errorf("have %+v", info)
				}
			}
		})
	}
}

// A server that shuts down puts the tasks of a batch back, and another one takes them up in their order, once it has a slot.
func TestABatchAtShutdown(t *testing.T) {
	t.Parallel()
	b, batches := setup(t), make(chan []int, 10)
	first := b.serveBatches(t, 3, queue.ServerConfig{Asynq: asynq.Config{ShutdownTimeout: time.Millisecond}}, func(ctx context.Context, batch []*queue.BatchTask[job]) error {
		if len(batch) == 3 {
			<-ctx.Done()
		}
		return ctx.Err()
	})
	first.line(t, 4)
	first.want(t, []int{1, 2, 3})
	second := b.newServer(t, queue.ServerConfig{Observe: first.observe, Asynq: asynq.Config{Concurrency: 1, Queues: map[string]int{b.queue: 1, b.queue + "-2": 1}}})
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
	b.enqueue(t, job{b.resource + "-2", -1}, queue.Options{Queue: b.queue + "-2"})
	within(t, patience, "the other task", busy)
	shutdown(t, first.server)
	close(leaves)
	for _, want := range [][]int{{1, 2, 3}, {4}} {
		if have := within(t, patience, "the rest", batches); !slices.Equal(have, want) {
			t.Errorf("want %v, have %v", want, have)
		}
	}
	first.awaitBalance(t)
}

func TestHandleBatchPanics(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.newServer(t, queue.ServerConfig{})
	t.Cleanup(func() { shutdown(t, s) })
	fn := func(context.Context, []*queue.BatchTask[job]) error { return nil }
	for want, call := range map[string]func(){
		"queue: Handle: " + job{}.Kind() + ": the handler is nil":   func() { queue.HandleBatch[job](s, 2, nil) },
		"queue: HandleBatch: want 2 to 100 tasks at most, have 1":   func() { queue.HandleBatch(s, 1, fn) },
		"queue: HandleBatch: want 2 to 100 tasks at most, have 101": func() { queue.HandleBatch(s, 101, fn) },
		"queue: Handle: " + job{}.Kind() + ": the server is nil":    func() { queue.HandleBatch(nil, 2, fn) },
		"queue: Handle: " + job{}.Kind() + " has a handler already": func() { queue.HandleBatch(s, 2, fn); queue.HandleBatch(s, 2, fn) },
	} {
		func() {
			defer func() {
				if p := recover(); fmt.Sprint(p) != want {
					t.Errorf("want %q, have %q", want, p)
				}
			}()
			call()
		}()
	}
}
