package queue_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/queue"
)

// Many tasks of a queue of low priority wait for one resource. With strict priority a task of a queue of
// high priority still goes next.
func TestStrictPriorityBesideAHotResource(t *testing.T) {
	t.Parallel()
	for _, concurrency := range []int{1, 2, 5, 8} {
		t.Run(fmt.Sprintf("%d at once", concurrency), func(t *testing.T) {
			t.Parallel()
			b, st := setup(t), newStage(t)
			low := b.queue + ".low"
			const tasks, high, every = 120, 1000, 20
			for n := range tasks {
				b.enqueue(t, job{Res: b.resource + ":low", N: n}, queue.Options{Queue: low})
				if n%every == 0 {
					st.act(n, func() error {
						b.enqueue(t, job{Res: b.resource + ":high", N: high + n})
						return nil
					})
				}
			}
			b.serve(t, queue.ServerConfig{
				Asynq: asynq.Config{Queues: map[string]int{b.queue: 2, low: 1}, StrictPriority: true, Concurrency: concurrency},
			}, st.run)
			order := st.awaitRuns(tasks + tasks/every)
			at := make(map[int]int)
			for i, n := range order {
				at[n] = i
			}
			for n := 0; n < tasks; n += every {
				// Tasks that were taken before may start first.
				if behind := at[high+n] - at[n]; behind > 10+concurrency {
					t.Errorf("want %d soon after %d, have %d runs between", high+n, n, behind)
				}
			}
		})
	}
}

// Tasks of a queue of low priority wait in line, and run one after the other in one
// worker. With strict priority a task of a queue of high priority goes before the next of them.
func TestStrictPriorityBesideWaiters(t *testing.T) {
	t.Parallel()
	b, st := setup(t), newStage(t)
	holder := b.holdElsewhere(t, st, longTimeout)
	high := b.queue + ".high"
	b.serve(t, queue.ServerConfig{Asynq: asynq.Config{Queues: map[string]int{high: 2, b.queue: 1}, StrictPriority: true, Concurrency: 1}}, st.run)
	const waiters, middle, urgent = 20, 5, 1000
	var waiting []int
	for n := 1; n <= waiters; n++ {
		waiting = append(waiting, n)
	}
	b.park(t, waiting...)
	st.act(middle, func() error {
		b.enqueue(t, job{Res: b.resource + ":high", N: urgent}, queue.Options{Queue: high})
		return nil
	})
	holder.open()
	order := st.awaitRuns(waiters + 2)
	if behind := slices.Index(order, urgent) - slices.Index(order, middle); behind != 1 {
		t.Errorf("want %d right after %d, have %v", urgent, middle, order)
	}
}

// Tasks are taken in proportion to the weights of their queues. That holds if each is taken in the
// step in which another one ends.
func TestWeightsOfABacklog(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		concurrency int
		hot         bool
	}{{1, false}, {4, false}, {1, true}} {
		t.Run(fmt.Sprintf("%d at once, hot %t", tt.concurrency, tt.hot), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
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
				if _, err := b.client.EnqueueBatch(t.Context(), jobs); err != nil {
					t.Fatal(err)
				}
			}
			ran := make(chan string, 3*tasks)
			b.serve(t, queue.ServerConfig{Asynq: asynq.Config{Queues: weights, Concurrency: tt.concurrency}}, func(ctx context.Context, _ job) error {
				ran <- queue.InfoFrom(ctx).Queue
				return nil
			})
			have := make(map[string]int)
			for range counted {
				have[within(t, patience, "a task", ran)]++
			}
			for name, weight := range weights {
				// The tolerance is five times what chance makes of it, and the tasks that are parked at first.
				want := counted * weight / 10
				if off := have[name] - want; off > 55 || off < -55 {
					t.Errorf("%s: want some %d, have %v", name, want, have)
				}
			}
		})
	}
}
