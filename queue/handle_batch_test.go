package queue_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
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

// numbers returns those of the tasks of a batch.
func numbers(batch []*queue.BatchTask[job]) (all []int) {
	for _, t := range batch {
		all = append(all, t.Task.N)
	}
	return all
}

// start starts a server for the time of a test.
func start(t *testing.T, s *queue.Server) {
	t.Helper()
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shutdown(t, s) })
}

// behind enqueues so many tasks behind one that is at work, numbered from 1 on, and waits until they wait.
func behind(t *testing.T, b *bundle, j *journal, n int) (ids []string) {
	t.Helper()
	for i := range n {
		id := b.enqueue(t, job{b.resource, i + 1})
		j.await(t, queue.EventParked, id, 1)
		ids = append(ids, id)
	}
	return ids
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
			b, j := tt.setup(t), &journal{}
			batches, goes := make(chan []int, 10), make(chan struct{})
			s := b.newServer(t, queue.ServerConfig{Store: tt.store, Observe: j.observe, Asynq: asynq.Config{Concurrency: 2}})
			var at atomic.Int64
			queue.HandleBatch(s, 3, func(ctx context.Context, batch []*queue.BatchTask[job]) error {
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
				batches <- numbers(batch)
				<-goes
				return nil
			})
			start(t, s)
			b.enqueue(t, job{b.resource, 0})
			have := [][]int{within(t, patience, "the first", batches)}
			ids := behind(t, b, j, 5)
			close(goes)
			for range 2 {
				have = append(have, within(t, patience, "the next", batches))
			}
			if want := [][]int{{0}, {1, 2, 3}, {4, 5}}; !reflect.DeepEqual(have, want) {
				t.Errorf("want %v, have %v", want, have)
			}
			for i, id := range ids {
				b.awaitGone(t, id)
				e := j.await(t, queue.EventAcquired, id, 1)
				if batched := e.Via == queue.ViaBatch; tt.store == nil && batched != (i != 0 && i != 3) || e.Waited <= 0 {
					t.Errorf("task %d: have %+v", i+1, e)
				}
			}
			j.awaitBalance(t)
		})
	}
}

// Each task of a batch has an outcome of its own: that of the handler, unless that has said another.
func TestOutcomesOfABatch(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for name, tt := range map[string]struct {
		handle func(batch []*queue.BatchTask[job]) error
		want   []asynq.TaskState // 0 for a task that is gone
	}{
		"all fail":  {func([]*queue.BatchTask[job]) error { return boom }, []asynq.TaskState{asynq.TaskStateRetry, asynq.TaskStateRetry, asynq.TaskStateRetry}},
		"all panic": {func([]*queue.BatchTask[job]) error { panic("boom") }, []asynq.TaskState{asynq.TaskStateRetry, asynq.TaskStateRetry, asynq.TaskStateRetry}},
		"all end":   {func([]*queue.BatchTask[job]) error { runtime.Goexit(); return nil }, []asynq.TaskState{asynq.TaskStateRetry, asynq.TaskStateRetry, asynq.TaskStateRetry}},
		"each its own": {func(batch []*queue.BatchTask[job]) error {
			batch[0].End(boom)
			batch[1].End(queue.Permanent(boom))
			return nil
		}, []asynq.TaskState{asynq.TaskStateRetry, asynq.TaskStateArchived, 0}},
		"panic after an end": {func(batch []*queue.BatchTask[job]) error {
			batch[1].End(nil)
			panic("boom")
		}, []asynq.TaskState{asynq.TaskStateRetry, 0, asynq.TaskStateRetry}},
		"but one": {func(batch []*queue.BatchTask[job]) error {
			batch[1].End(boom)
			batch[1].End(nil)
			return boom
		}, []asynq.TaskState{asynq.TaskStateRetry, 0, asynq.TaskStateRetry}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, j := setup(t), &journal{}
			began, goes := make(chan struct{}, 10), make(chan struct{})
			s := b.newServer(t, queue.ServerConfig{Observe: j.observe, Asynq: asynq.Config{RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Hour }}})
			queue.HandleBatch(s, 10, func(_ context.Context, batch []*queue.BatchTask[job]) error {
				began <- struct{}{}
				<-goes
				if len(batch) == 1 {
					return nil
				}
				return tt.handle(batch)
			})
			start(t, s)
			b.enqueue(t, job{b.resource, 0})
			within(t, patience, "the first", began)
			ids := behind(t, b, j, 3)
			close(goes)
			within(t, patience, "the batch", began)
			j.awaitBalance(t)
			for i, id := range ids {
				if tt.want[i] == 0 {
					b.awaitGone(t, id)
					continue
				}
				info, err := b.inspector.GetTaskInfo(b.queue, id)
				if err != nil || info.State != tt.want[i] {
					t.Errorf("task %d: want %v, have %+v, %v", i+1, tt.want[i], info, err)
				}
			}
			b.soonFree(t, b.resource)
		})
	}
}

// A task that fails in a batch, and is to hold its line, is the next to run. Those behind it are put back, and run after it.
func TestABatchHoldsItsLine(t *testing.T) {
	t.Parallel()
	b, j := setup(t), &journal{}
	batches, goes := make(chan []int, 10), make(chan struct{})
	s := b.newServer(t, queue.ServerConfig{
		Observe: j.observe, Policies: map[string]queue.Policy{job{}.Kind(): {OnFailure: queue.OnFailureHold}},
		Asynq: asynq.Config{RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Millisecond }},
	})
	queue.HandleBatch(s, 3, func(_ context.Context, batch []*queue.BatchTask[job]) error {
		batches <- numbers(batch)
		<-goes
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
	start(t, s)
	b.enqueue(t, job{b.resource, 0})
	have := [][]int{within(t, patience, "the first", batches)}
	behind(t, b, j, 5)
	close(goes)
	for range 2 {
		have = append(have, within(t, patience, "the next", batches))
	}
	if want := [][]int{{0}, {1, 2, 3}, {2, 3, 4}}; !reflect.DeepEqual(have, want) {
		t.Errorf("want %v, have %v", want, have)
	}
	j.awaitBalance(t)
}

// The lock of a batch is lost: all its tasks come again in their order, and use no retry.
func TestABatchLosesItsLock(t *testing.T) {
	t.Parallel()
	b, j := setup(t), &journal{}
	batches, goes := make(chan []int, 10), make(chan struct{})
	var once sync.Once
	s := b.newServer(t, queue.ServerConfig{Observe: j.observe, Lock: shortTimes})
	queue.HandleBatch(s, 3, func(ctx context.Context, batch []*queue.BatchTask[job]) error {
		batches <- numbers(batch)
		<-goes
		for _, task := range batch {
			if task.Info.Retried > 0 {
				t.Errorf("want no retry used, have %+v", task.Info)
			}
		}
		if len(batch) == 3 {
			once.Do(func() {
				if err := b.rdb.Del(ctx, "lock:"+b.resource).Err(); err != nil {
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
	start(t, s)
	b.enqueue(t, job{b.resource, 0})
	within(t, patience, "the first", batches)
	ids := behind(t, b, j, 3)
	close(goes)
	for _, id := range ids {
		b.awaitGone(t, id)
	}
	for _, id := range ids {
		j.await(t, queue.EventLost, id, 1)
	}
	j.awaitBalance(t)
}

// The context of a batch ends with the first timeout of its tasks, and if one of them is canceled.
func TestContextOfABatch(t *testing.T) {
	t.Parallel()
	for name, cause := range map[string]error{"timeout": context.DeadlineExceeded, "canceled": context.Canceled} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, j := setup(t), &journal{}
			began, goes := make(chan context.Context, 10), make(chan struct{})
			s := b.newServer(t, queue.ServerConfig{Observe: j.observe})
			queue.HandleBatch(s, 3, func(ctx context.Context, batch []*queue.BatchTask[job]) error {
				began <- ctx
				if <-goes; len(batch) == 3 {
					<-ctx.Done()
					return queue.Permanent(ctx.Err())
				}
				return nil
			})
			start(t, s)
			b.enqueue(t, job{b.resource, 0})
			within(t, patience, "the first", began)
			ids := behind(t, b, j, 2)
			opts := queue.Options{}
			if name == "timeout" {
				opts.Timeout = time.Second
			}
			last := b.enqueue(t, job{b.resource, 3}, opts)
			j.await(t, queue.EventParked, last, 1)
			close(goes)
			ctx := within(t, patience, "the batch", began)
			if name == "canceled" {
				poll.Eventually(t, "the end", func() bool {
					if err := b.inspector.CancelProcessing(last); err != nil {
						t.Error(err)
					}
					return ctx.Err() != nil
				})
			}
			within(t, patience, "the end of the context", ctx.Done())
			if !errors.Is(ctx.Err(), cause) {
				t.Errorf("want %v, have %v", cause, ctx.Err())
			}
			j.awaitBalance(t)
			for _, id := range append(ids, last) {
				if info, err := b.inspector.GetTaskInfo(b.queue, id); err != nil || info.State != asynq.TaskStateArchived {
					t.Errorf("have %+v, %v", info, err)
				}
			}
		})
	}
}

// A server that shuts down puts the tasks of a batch back, and another one takes them up in their order, once it has a slot.
func TestABatchAtShutdown(t *testing.T) {
	t.Parallel()
	b, j := setup(t), &journal{}
	batches, goes := make(chan []int, 10), make(chan struct{})
	handler := func(ctx context.Context, batch []*queue.BatchTask[job]) error {
		batches <- numbers(batch)
		if <-goes; len(batch) == 3 && len(batches) == 0 {
			<-ctx.Done()
		}
		return ctx.Err()
	}
	first := b.newServer(t, queue.ServerConfig{Observe: j.observe, Asynq: asynq.Config{ShutdownTimeout: time.Millisecond}})
	queue.HandleBatch(first, 3, handler)
	if err := first.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.enqueue(t, job{b.resource, 0})
	have := [][]int{within(t, patience, "the first", batches)}
	behind(t, b, j, 4)
	close(goes)
	have = append(have, within(t, patience, "the batch", batches))
	second := b.newServer(t, queue.ServerConfig{Observe: j.observe, Asynq: asynq.Config{Concurrency: 1, Queues: map[string]int{b.queue: 1, b.queue + "-2": 1}}})
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
	shutdown(t, first)
	close(leaves)
	for len(slices.Concat(have[2:]...)) < 4 {
		have = append(have, within(t, patience, "the rest", batches))
	}
	if want := [][]int{{0}, {1, 2, 3}, {1, 2, 3}, {4}}; !reflect.DeepEqual(have, want) {
		t.Errorf("want %v, have %v", want, have)
	}
	j.awaitBalance(t)
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
