package queue_test

import (
	"context"
	"io"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// isHandOver knows a release with a seat by the number of its arguments.
func isHandOver(cmd redis.Cmder) bool {
	return hasKeys(cmd, "lock:", ":fence", ":line", ":paused", ":released:") && len(cmd.Args()) == 22
}

// Where a worker is idle, a lock that is handed on goes to the next waiter in the step of its
// release: the waiter needs no dequeue, and nobody is called. Order and fences are those of
// the line.
func TestHandedOverToAnIdleWorker(t *testing.T) {
	t.Parallel()
	b, st, j := setup(t), newStage(t), &journal{}
	holder := b.holdElsewhere(t, st, longGrace)
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
			if isHandOver(cmd) && err == nil {
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
	// The first is called, as its holder is elsewhere; the server may be at work on a task
	// just then, which is called in its turn.
	if have := took.Load(); have > waiters/5 {
		t.Errorf("want hardly a dequeue, have %d for %d tasks", have, waiters)
	}
	if have := over.Load(); have < waiters*4/5 {
		t.Errorf("want the lock handed over, have %d times of %d", have, waiters)
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

// The answer to a hand-over is lost: nobody knows that a waiter has begun. The holder's word
// stands, and the waiter runs once its lock has ended.
func TestHandOverWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	b, st := setup(t), newStage(t)
	cfg := lock.Config{TTL: 2 * time.Second}
	holder := b.holdElsewhere(t, st, cfg)
	var lost atomic.Bool
	p := &plain{
		guardConfig: queue.GuardConfig{Lock: cfg},
		onLocks: func(_ context.Context, cmd redis.Cmder, send func() error) error {
			err := send()
			if c, ok := cmd.(*redis.Cmd); ok && isHandOver(cmd) && err == nil && !lost.Swap(true) {
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

// A waiter in another queue than its holder's, and one of which no idle worker of the
// holder's process knows, are called.
func TestHandOverAcrossQueues(t *testing.T) {
	t.Parallel()
	b, st := setup(t), newStage(t)
	other := b.queue + ".other"
	holder := b.holdElsewhere(t, st, lock.Config{})
	b.serve(t, queue.ServerConfig{}, st.run)
	b.serve(t, queue.ServerConfig{Queues: map[string]int{other: 1}}, st.run)
	var ids []string
	for n := range 20 {
		if n%2 == 0 {
			ids = append(ids, b.park(t, n+1)...)
			continue
		}
		b.enqueue(t, b.job(n+1), queue.Options{Queue: other})
		poll.Eventually(t, "it to be in line", func() bool { return len(b.line(t)) == n+1 })
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
