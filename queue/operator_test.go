package queue_test

import (
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// Operators may delete, run or archive a waiting task in the dashboard. The task behind it runs at
// once.
func TestOperatorTakesTheHeadAway(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		do   func(*asynq.Inspector, string, string) error
		left asynq.TaskState
	}{
		{"deleted", (*asynq.Inspector).DeleteTask, 0},
		{"archived", (*asynq.Inspector).ArchiveTask, asynq.TaskStateArchived},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(t *testing.T, b *bundle) {
				t.Helper()
				st := newStage(t)
				b.serve(t, queue.ServerConfig{}, st.run)
				holder := b.occupy(t, st)
				ids := b.park(t, 1, 2)
				must(t, tt.do(b.inspector, b.queue, ids[0]))
				start := time.Now()
				holder.open()
				b.awaitGone(t, ids[1])
				wantSoon(t, start, "the next: want it at once")
				if have := b.state(ids[0]); have != tt.left {
					t.Errorf("the one taken away: want state %v, have %v", tt.left, have)
				}
				b.wantWaiters(t)
				poll.Eventually(t, "a free lock", func() bool { return b.value(t) == "" })
				if info := b.stats(t); info.Pending+info.Retry+info.Active != 0 {
					t.Errorf("want nothing left, have %+v", info)
				}
				st.wantOrder(0, 2)
			})
		})
	}
}

// A task that is deleted while it waits has no place any more: one of its id is a new task, behind all others.
func TestOperatorDeletesAndTheIdComesAgain(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st := newStage(t)
		b.serve(t, queue.ServerConfig{}, st.run)
		holder := b.occupy(t, st)
		own := queue.Options{TaskID: "own"}
		first := b.enqueueWaiter(t, 1, 1, own)
		second := b.enqueueWaiter(t, 2, 2, queue.Options{})
		must(t, b.inspector.DeleteTask(b.queue, first))
		again := b.enqueueWaiter(t, 3, 2, own)
		b.wantWaiters(t, second, again)
		holder.open()
		b.awaitGone(t, second, again)
		st.wantOrder(0, 2, 3)
	})
}

// An archived task that is run again is a task like any other.
func TestOperatorRunsArchivedWaiter(t *testing.T) {
	t.Parallel()
	b, st := setup(t), newStage(t)
	holder := b.holdElsewhere(t, st, lock.Config{})
	b.serve(t, queue.ServerConfig{}, st.run)
	ids := b.park(t, 1, 2)
	must(t, b.inspector.ArchiveTask(b.queue, ids[0]))
	must(t, b.inspector.RunTask(b.queue, ids[0]))
	b.awaitState(t, ids[0], asynq.TaskStateRetry)
	b.wantWaiters(t, ids...)
	holder.open()
	st.wantOrder(0, 1, 2)
}

// A waiter whose queue is paused cannot come. The next one runs at once, and the waiter when its queue goes
// on. It keeps its place.
func TestOperatorPausesTheQueueOfTheHead(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st := newStage(t)
		holder := b.holdElsewhere(t, st, shortTimes)
		other := *b
		other.queue += ".other"
		b.serve(t, queue.ServerConfig{Asynq: asynq.Config{Queues: map[string]int{b.queue: 1, other.queue: 1}}, Lock: shortTimes}, st.run)
		paused := b.park(t, 1)[0]
		next := other.park(t, 2)[0]
		must(t, b.inspector.PauseQueue(b.queue))
		start := time.Now()
		holder.open()
		other.awaitGone(t, next)
		wantSoon(t, start, "the next: want it at once")
		b.wantWaiters(t, paused)
		st.wantOrder(0, 2)
		must(t, b.inspector.UnpauseQueue(b.queue))
		b.awaitGone(t, paused)
		st.wantOrder(0, 2, 1)
	})
}
