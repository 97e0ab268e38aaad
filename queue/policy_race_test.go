package queue_test

import (
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/queue"
)

// awaitEnd waits until a task is done. It fails the test if the task is archived.
func (b *bundle) awaitEnd(t *testing.T, id string) {
	t.Helper()
	var state asynq.TaskState
	poll.Eventually(t, "the end of task "+id, func() bool { state = b.state(id); return state == 0 || state == asynq.TaskStateArchived })
	if state != 0 {
		info, _ := b.inspector.GetTaskInfo(b.queue, id)
		t.Fatalf("want it done, have it archived: %s", info.LastErr)
	}
}

// A task takes over the time of the one that it replaces, and comes by itself when its MaxWait is over.
func TestMaxWaitOfAReplacedTask(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st, j := newStage(t), &journal{}
		b.serve(t, queue.ServerConfig{Asynq: asynq.Config{DelayedTaskCheckInterval: time.Hour}, Observe: j.observe}, st.run)
		g := b.occupy(t, st)
		replace := queue.Options{Policy: &queue.Policy{OnBusy: queue.OnBusyReplace, MaxWait: time.Hour}}
		old := b.enqueueWaiter(t, 1, 1, replace)
		b.backdate(t, old, 50*time.Minute)
		id := b.enqueue(t, b.job(2), replace)
		j.await(t, queue.EventReplaced, old, 1)
		left := time.Until(b.awaitState(t, id, asynq.TaskStateRetry).NextProcessAt)
		if left < 9*time.Minute+30*time.Second || left > 10*time.Minute+5*time.Second {
			t.Errorf("want it to come in 10 minutes, have %v", left)
		}
		b.wantWaiters(t, id)
		g.open()
		b.awaitEnd(t, id)
		st.wantOrder(0, 2)
	})
}

// A task that replaces one of a higher level has not waited for the head start of that one.
func TestReplaceOneOfAHigherLevel(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st, j := newStage(t), &journal{}
		b.serve(t, queue.ServerConfig{Observe: j.observe}, st.run)
		g := b.occupy(t, st)
		replace := queue.Options{Policy: &queue.Policy{OnBusy: queue.OnBusyReplace, MaxWait: time.Minute}}
		high := replace
		high.Priority = queue.MaxPriority
		b.enqueueWaiter(t, 1, 1, high)
		low := b.enqueue(t, b.job(2), replace)
		j.await(t, queue.EventParked, low, 1)
		b.awaitState(t, low, asynq.TaskStateRetry)
		b.wantWaiters(t, low)
		g.open()
		b.awaitEnd(t, low)
		st.wantOrder(0, 2)
		if e := j.await(t, queue.EventAcquired, low, 1); e.Waited > patience {
			t.Errorf("want how long it has waited, have %v", e.Waited)
		}
	})
}

// backdate lets a task that waits for the bundle's resource have come earlier.
func (b *bundle) backdate(t *testing.T, id string, by time.Duration) {
	t.Helper()
	came := time.Now().Add(-by).UnixMicro()
	b.do(t, "HSET", b.taskKey(id), "siding_ticket", came)
	b.do(t, "ZADD", b.lineKey(), "XX", came, id)
	if ends, err := b.rdb.HGet(t.Context(), b.taskKey(id), "siding_wait_ends").Int64(); err == nil {
		b.do(t, "HSET", b.taskKey(id), "siding_wait_ends", ends-int64(by/time.Second))
	}
}

// A task is not coalesced into one that has waited for too long already, and will not run.
func TestCoalesceIntoOneThatIsTooLate(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st, j := newStage(t), &journal{}
		b.serve(t, queue.ServerConfig{
			Asynq:   asynq.Config{DelayedTaskCheckInterval: time.Hour},
			Observe: j.observe,
		}, st.run)
		g := b.occupy(t, st)
		coalesce := queue.Options{Policy: &queue.Policy{OnBusy: queue.OnBusyCoalesce, MaxWait: time.Minute}}
		late := b.enqueueWaiter(t, 1, 1, coalesce)
		b.backdate(t, late, 2*time.Minute)
		again := b.enqueue(t, b.job(1), coalesce)
		poll.Eventually(t, "it has come", func() bool { return len(j.of(queue.EventParked, again))+len(j.of(queue.EventCoalesced, again)) > 0 })
		if len(j.of(queue.EventCoalesced, again)) > 0 {
			t.Fatal("want it to wait, have it dropped")
		}
		g.open()
		b.awaitState(t, late, asynq.TaskStateArchived)
		b.awaitEnd(t, again)
		st.wantOrder(0, 1)
	})
}

// A task that keeps the first place, as the external store did not answer, is not rejected because
// of that.
func TestRejectWithAnExternalStoreThatFails(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st := unfencedStage(t)
		store := newQueueless(locktest.NewMemory())
		store.down.Store(true)
		b.serve(t, queue.ServerConfig{Store: store}, st.run)
		id := b.enqueue(t, b.job(1), queue.Options{Policy: &queue.Policy{OnBusy: queue.OnBusyReject}})
		b.awaitState(t, id, asynq.TaskStateRetry)
		store.down.Store(false)
		b.awaitEnd(t, id)
		st.wantOrder(1)
	})
}

// A task is not coalesced into another one that has the id of a waiter which an operator has deleted.
func TestCoalesceIntoAnIdThatIsUsedAgain(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st, j := newStage(t), &journal{}
		b.serve(t, queue.ServerConfig{Observe: j.observe}, st.run)
		g := b.occupy(t, st)
		coalesce := queue.Options{Policy: &queue.Policy{OnBusy: queue.OnBusyCoalesce}}
		named := coalesce
		named.TaskID = "x"
		b.enqueueWaiter(t, 1, 1, named)
		must(t, b.inspector.DeleteTask(b.queue, "x"))
		b.enqueue(t, b.job(2), queue.Options{TaskID: "x", Delay: time.Hour})
		id := b.enqueue(t, b.job(1), coalesce)
		poll.Eventually(t, "it has come", func() bool { return len(j.of(queue.EventParked, id))+len(j.of(queue.EventCoalesced, id)) > 0 })
		if len(j.of(queue.EventCoalesced, id)) > 0 {
			t.Error("want it to wait, have it dropped")
		}
		g.open()
		b.awaitEnd(t, id)
	})
}
