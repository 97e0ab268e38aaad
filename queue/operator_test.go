package queue_test

import (
	"errors"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// Operators may delete, run or archive a waiting task in the dashboard. The task behind it runs at
// once.
func TestOperatorTakesTheHeadAway(t *testing.T) {
	t.Parallel()
	type row struct {
		do   func(*asynq.Inspector, string, string) error
		left asynq.TaskState
	}
	eachOf(t, onBoth, map[string]row{
		"deleted":  {(*asynq.Inspector).DeleteTask, 0},
		"archived": {(*asynq.Inspector).ArchiveTask, asynq.TaskStateArchived},
	}, func(b *bundle, tt row) {
		b.serve(queue.ServerConfig{}, b.run)
		holder := b.occupy()
		ids := b.park(1, 2)
		expect.OK(b, tt.do(b.inspector, b.queue, ids[0]))
		start := time.Now()
		holder.open()
		b.awaitGone(ids[1])
		wantSoon(b, start, "the next: want it at once")
		expect.Equal(b, "the one taken away", b.state(ids[0]), tt.left)
		b.wantWaiters()
		expect.Eventually(b, "a free lock", func() bool { return b.value() == "" })
		info := b.stats()
		expect.That(b, info.Pending+info.Retry+info.Active == 0, "want nothing left, have %+v", info)
		b.wantOrder(0, 2)
	})
}

// A task that is deleted while it waits has no place any more: one of its id is a new task, behind all others.
func TestOperatorDeletesAndTheIdComesAgain(t *testing.T) {
	t.Parallel()
	everywhere(t, func(b *bundle) {
		b.serve(queue.ServerConfig{}, b.run)
		holder := b.occupy()
		own := queue.Options{TaskID: "own"}
		first := b.enqueueWaiter(1, 1, own)
		second := b.enqueueWaiter(2, 2, queue.Options{})
		expect.OK(b, b.inspector.DeleteTask(b.queue, first))
		again := b.enqueueWaiter(3, 2, own)
		b.wantWaiters(second, again)
		holder.open()
		b.awaitGone(second, again)
		b.wantOrder(0, 2, 3)
	})
}

// An archived task that is run again is a task like any other.
func TestOperatorRunsArchivedWaiter(t *testing.T) {
	t.Parallel()
	b := setup(t)
	holder := b.holdElsewhere(lock.Config{})
	b.serve(queue.ServerConfig{}, b.run)
	ids := b.park(1, 2)
	expect.OK(t, b.inspector.ArchiveTask(b.queue, ids[0]))
	expect.OK(t, b.inspector.RunTask(b.queue, ids[0]))
	b.awaitState(ids[0], asynq.TaskStateRetry)
	b.wantWaiters(ids...)
	holder.open()
	b.wantOrder(0, 1, 2)
}

// What a handler returns counts, also after an operator has canceled its task: the same as at any other time, each time.
// Whoever waits runs next. (e2e/asynqdiff has the same of tasks without a resource.)
func TestCanceled(t *testing.T) {
	t.Parallel()
	boom := errors.New("out of stock")
	type row struct {
		result  error
		state   asynq.TaskState // of the task; 0 for gone
		retried int
	}
	eachOf(t, onOne, map[string]row{
		"nil":         {nil, 0, 0},
		"an error":    {boom, asynq.TaskStateRetry, 1},
		"permanent":   {queue.Permanent(boom), asynq.TaskStateArchived, 0},
		"skip retry":  {asynq.SkipRetry, asynq.TaskStateArchived, 0},
		"revoke task": {asynq.RevokeTask, 0, 0},
	}, func(b *bundle, tt row) {
		(&plain{guardConfig: queue.ServerConfig{Resources: resources()}}).serve(b)
		canceled := b.hold(0)
		b.act(0, func() error { return tt.result })
		id := b.enqueuePlain(b.job(0))
		within(b, patience, "the handler", canceled.entered)
		expect.Eventually(b, "the end of its context", func() bool {
			expect.OK(b, b.inspector.CancelProcessing(id)) // time and again, as the server may not listen yet
			return isClosed(canceled.ended)
		})
		canceled.open()
		if tt.state == 0 {
			b.awaitGone(id)
		} else if info := b.awaitState(id, tt.state); info.Retried != tt.retried || info.LastErr != tt.result.Error() {
			b.Errorf("want %d retries used and its error, have %+v", tt.retried, info)
		}
		b.awaitGone(b.enqueuePlain(b.job(1)))
		b.wantOrder(0, 1)
	})
}
