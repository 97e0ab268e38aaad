package queue_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/queue"
)

// actsByPolicy are the policies that end a task or compare it with others.
var actsByPolicy = map[string]queue.Policy{
	"reject":      {OnBusy: queue.OnBusyReject},
	"coalesce":    {OnBusy: queue.OnBusyCoalesce},
	"replace":     {OnBusy: queue.OnBusyReplace},
	"max waiting": {MaxWaiting: 1},
}

// byPolicy returns how many tasks their policies have ended.
func (j *journal) byPolicy() (n int) {
	for _, kind := range []queue.EventKind{queue.EventRejected, queue.EventCoalesced, queue.EventReplaced} {
		n += len(j.of(kind, ""))
	}
	return n
}

// awaitParked waits until a task is parked for the n-th time, and fails at once if a policy ends a task.
func (b *bundle) awaitParked(id string, n int) {
	b.Helper()
	expect.Eventually(b, "the task parked", func() bool {
		expect.Need(b, b.byPolicy() == 0, "want the task parked, have one ended by its policy")
		return len(b.of(queue.EventParked, id)) >= n
	})
	b.awaitState(id, asynq.TaskStateRetry)
}

// comeAgain has a task that waits come now, as an operator does. In a Cluster it may just have come by itself.
func (b *bundle) comeAgain(id string) {
	b.Helper()
	expect.Eventually(b, "the task run by an operator", func() bool { return b.inspector.RunTask(b.queue, id) == nil })
}

// A task that has begun and lost its lock is parked when it finds the lock busy, each time from then on.
func TestPolicyAfterALoss(t *testing.T) {
	t.Parallel()
	eachOf(t, onBoth, actsByPolicy, func(b *bundle, policy queue.Policy) {
		b.unsafe = true // its lock is taken away before it learns of that
		b.serve(queue.ServerConfig{Observe: b.observe, Lock: shortTimes}, b.run)
		first, id := b.begin(0, queue.Options{Policy: &policy})
		waiter := b.enqueueWaiter(1, 1, queue.Options{})
		var o queue.Options
		if policy.OnBusy == queue.OnBusyCoalesce || policy.OnBusy == queue.OnBusyReplace {
			o.Policy = &policy
		}
		alike := b.enqueueWaiter(0, 2, o)
		b.do("SET", b.lockKey(), "another program", "EX", 60)
		within(b, patience, "the task to lose its lock", first.ended)
		first.open()
		b.awaitParked(id, 1)
		b.comeAgain(id)
		b.awaitParked(id, 2)
		b.do("DEL", b.lockKey())
		b.awaitGone(id, waiter, alike)
		if runs := b.awaitRuns(4); b.isCluster() && runs[1] == 1 {
			b.wantOrder(0, 1, 0, 0) // the waiter had begun to ask the lock's own node before the other came back
		} else {
			b.wantOrder(0, 0, 1, 0)
		}
		expect.Equal(b, "tasks ended by their policies", b.byPolicy(), 0)
	})
}

// A task that waited, began and lost its lock is not deleted for one that is to replace it.
func TestReplaceKeepsOneThatHasBegun(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bundle) {
		b.unsafe = true // its lock is taken away before it learns of that
		b.serve(queue.ServerConfig{Observe: b.observe, Lock: shortTimes}, b.run)
		holder, begun := b.occupy(), b.hold(1)
		replace := queue.Options{Policy: &queue.Policy{OnBusy: queue.OnBusyReplace}}
		id := b.enqueueWaiter(1, 1, replace)
		holder.open()
		within(b, patience, "the task", begun.entered)
		waiter := b.enqueueWaiter(2, 1, queue.Options{})
		b.do("SET", b.lockKey(), "another program", "EX", 60)
		within(b, patience, "the task to lose its lock", begun.ended)
		begun.open()
		b.awaitParked(id, 2)
		later := b.enqueue(b.job(3), replace)
		b.awaitParked(later, 1)
		b.do("DEL", b.lockKey())
		b.awaitGone(id, waiter, later)
		if runs := b.awaitRuns(5); b.isCluster() && runs[2] == 2 {
			b.wantOrder(0, 1, 2, 1, 3) // the waiter had begun to ask the lock's own node before the other came back
		} else {
			b.wantOrder(0, 1, 1, 2, 3)
		}
	})
}

// A task that was at work when its server shut down is parked when it finds the lock busy.
func TestPolicyAfterAShutdown(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bundle) {
		s := b.serve(queue.ServerConfig{}, b.run)
		id := b.givenBack(s, queue.Options{Policy: &queue.Policy{OnBusy: queue.OnBusyReject}})
		expect.OK(b, b.rdb.Set(b.Context(), b.lockKey(), "another program", time.Minute).Err())
		b.serve(queue.ServerConfig{Observe: b.observe}, b.run)
		b.comeAgain(id)
		b.awaitParked(id, 1)
		rejected := b.enqueue(b.job(1), queue.Options{Policy: &queue.Policy{OnBusy: queue.OnBusyReject}})
		b.awaitState(rejected, asynq.TaskStateArchived) // a new one is
		expect.OK(b, b.rdb.Del(b.Context(), b.lockKey()).Err())
		b.awaitGone(id)
		b.wantOrder(0, 0)
	})
}

// OnMaxWait is called until it succeeds. The handler does not run, although the lock is free, and whoever finds out that it is
// too late: a step when the time is over, or the server that gets the lock for the task before that.
func TestOnMaxWaitFails(t *testing.T) {
	t.Parallel()
	eachOf(t, onBoth, map[string]time.Duration{"waits on": time.Second, "has its lock": time.Hour}, func(b *bundle, maxWait time.Duration) {
		calls := make(chan int, 10)
		b.serve(queue.ServerConfig{
			Asynq:   asynq.Config{RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 0 }},
			Observe: b.observe, OnMaxWait: func(ctx context.Context, _ *asynq.Task) error {
				retried := queue.InfoFrom(ctx).Retried
				calls <- retried
				switch retried {
				case 0:
					return errors.New("not now")
				case 1:
					panic("not now")
				}
				return nil
			},
		}, b.run)
		g := b.occupy()
		id := b.enqueue(b.job(1), queue.Options{Retries: 5, Policy: &queue.Policy{MaxWait: maxWait}})
		if maxWait == time.Hour {
			b.await(queue.EventParked, id, 1)
			b.backdate(id, 2*time.Hour)
			g.open()
		}
		expect.Equal(b, "retries used at first", within(b, patience, "OnMaxWait", calls), 0)
		if maxWait != time.Hour {
			g.open()
		}
		b.awaitGone(id)
		expect.Equal(b, "later calls of OnMaxWait", len(calls), 2)
		told := b.of(queue.EventWaitedTooLong, id)
		expect.That(b, len(told) == 1 && told[0].Waited >= maxWait && told[0].Waited <= 2*maxWait+patience,
			"want to be told once, of a wait of %v or more, have %+v", maxWait, told)
		b.wantOrder(0)
	})
}

// An operator runs a task that was archived as too late. It runs, and so does its retry.
func TestLateTaskIsRunByAnOperator(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bundle) {
		b.serve(queue.ServerConfig{Asynq: asynq.Config{RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 0 }}}, b.run)
		g := b.occupy()
		id := b.enqueue(b.job(1), queue.Options{Retries: 1, Policy: &queue.Policy{MaxWait: 5 * time.Second}}) // enough for a free lock on a busy machine
		b.awaitState(id, asynq.TaskStateArchived)
		g.open()
		b.failOnce(1, errors.New("a failure of its own"))
		expect.OK(b, b.inspector.RunTask(b.queue, id))
		b.awaitGone(id)
		b.wantOrder(0, 1, 1)
	})
}

// A worker dies while it ends a task that has waited for too long. Another one ends the task, and does not
// run it.
func TestLateTaskOfAKilledWorker(t *testing.T) {
	t.Parallel()
	eachOf(t, onBoth, map[string]time.Duration{"waits on": time.Second, "has its lock": time.Hour}, func(b *bundle, maxWait time.Duration) {
		var victim mortal
		victim.guardConfig.Lock.TTL = 6 * time.Second // also on a slow machine the holder keeps its lock
		called := make(chan struct{})
		victim.guardConfig.OnMaxWait = func(ctx context.Context, _ *asynq.Task) error {
			close(called)
			<-b.Context().Done()
			return context.Cause(ctx)
		}
		victim.serve(b)
		g, holder := b.begin(0)
		id := b.enqueue(b.job(1), queue.Options{Policy: &queue.Policy{MaxWait: maxWait}})
		if maxWait == time.Hour {
			b.awaitState(id, asynq.TaskStateRetry)
			b.backdate(id, 2*time.Hour)
			b.do("HSET", b.taskKey(id), "siding_wait_ends", time.Now().Add(5*time.Second).Unix()) // whole seconds end later than the time itself
			g.open()
			within(b, patience, "OnMaxWait", called)
		} else {
			within(b, patience, "OnMaxWait", called)
			g.open()
		}
		// Or the holder would run again, too.
		expect.Eventually(b, "its holder done", func() bool { return b.state(holder) == 0 })
		victim.dead.Store(true)
		b.silence(id)
		cfg := quickRecovery
		cfg.Observe = b.observe
		b.serve(cfg, b.run)
		b.await(queue.EventRecovered, id, 1)
		b.await(queue.EventWaitedTooLong, id, 1)
		expect.Equal(b, "retries used", b.awaitState(id, asynq.TaskStateArchived).Retried, 0)
		b.wantOrder(0)
	})
}

// awaitEnd waits until a task is done. It fails the test if the task is archived.
func (b *bundle) awaitEnd(id string) {
	b.Helper()
	var state asynq.TaskState
	expect.Eventually(b, "the end of task "+id, func() bool { state = b.state(id); return state == 0 || state == asynq.TaskStateArchived })
	if state != 0 {
		info, _ := b.inspector.GetTaskInfo(b.queue, id)
		b.Fatalf("want it done, have it archived: %s", info.LastErr)
	}
}

// A task takes over the time of the one that it replaces, and comes by itself when its MaxWait is over.
func TestMaxWaitOfAReplacedTask(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bundle) {
		b.serve(queue.ServerConfig{Asynq: asynq.Config{DelayedTaskCheckInterval: time.Hour}, Observe: b.observe}, b.run)
		g := b.occupy()
		replace := queue.Options{Policy: &queue.Policy{OnBusy: queue.OnBusyReplace, MaxWait: time.Hour}}
		old := b.enqueueWaiter(1, 1, replace)
		b.backdate(old, 50*time.Minute)
		id := b.enqueue(b.job(2), replace)
		b.await(queue.EventReplaced, old, 1)
		left := time.Until(b.awaitState(id, asynq.TaskStateRetry).NextProcessAt)
		expect.That(b, left >= 9*time.Minute+30*time.Second && left <= 10*time.Minute+5*time.Second,
			"want it to come in 10 minutes, have %v", left)
		b.wantWaiters(id)
		g.open()
		b.awaitEnd(id)
		b.wantOrder(0, 2)
	})
}

// A task that replaces one of a higher level has not waited for the head start of that one.
func TestReplaceOneOfAHigherLevel(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bundle) {
		b.serve(queue.ServerConfig{Observe: b.observe}, b.run)
		g := b.occupy()
		replace := queue.Options{Policy: &queue.Policy{OnBusy: queue.OnBusyReplace, MaxWait: time.Minute}}
		high := replace
		high.Priority = queue.MaxPriority
		b.enqueueWaiter(1, 1, high)
		low := b.enqueue(b.job(2), replace)
		b.await(queue.EventParked, low, 1)
		b.awaitState(low, asynq.TaskStateRetry)
		b.wantWaiters(low)
		g.open()
		b.awaitEnd(low)
		b.wantOrder(0, 2)
		e := b.await(queue.EventAcquired, low, 1)
		expect.That(b, e.Waited <= patience, "want how long it has waited, have %v", e.Waited)
	})
}

// backdate lets a task that waits for the bundle's resource have come earlier.
func (b *bundle) backdate(id string, by time.Duration) {
	b.Helper()
	came := time.Now().Add(-by).UnixMicro()
	b.do("HSET", b.taskKey(id), "siding_ticket", came)
	b.do("ZADD", b.lineKey(), "XX", came, id)
	if ends, err := b.rdb.HGet(b.Context(), b.taskKey(id), "siding_wait_ends").Int64(); err == nil {
		b.do("HSET", b.taskKey(id), "siding_wait_ends", ends-int64(by/time.Second))
	}
}

// A task that keeps the first place, as the external store did not answer, has found nothing busy: its policy neither rejects it nor
// ends its wait.
func TestPolicyWithAnExternalStoreThatFails(t *testing.T) {
	t.Parallel()
	eachOf(t, onBoth, map[string]queue.Policy{"reject": {OnBusy: queue.OnBusyReject}, "max wait": {MaxWait: time.Second}}, func(b *bundle, policy queue.Policy) {
		b.unfenced = true
		store, asked := newQueueless(locktest.NewMemory()), new(atomic.Int32)
		store.down.Store(true)
		b.serve(queue.ServerConfig{Store: countedAcquires{store, asked}, Observe: b.observe}, b.run)
		id := b.enqueue(b.job(1), queue.Options{Policy: &policy})
		left := time.Until(b.awaitState(id, asynq.TaskStateRetry).NextProcessAt)
		expect.That(b, left >= time.Hour, "want no end of its wait, have one in %v", left) // it asks again from its place in the line
		expect.Eventually(b, "it has asked for longer", func() bool { return asked.Load() >= 4 })
		store.down.Store(false)
		b.awaitEnd(id)
		b.wantOrder(1)
		b.wantEvents(queue.EventAcquired, id, 1)
	})
}

// A task is not coalesced into one that will not run: one that has waited for too long, or another one that has the id of a
// waiter which an operator has deleted.
func TestCoalesceIntoOneThatWillNotRun(t *testing.T) {
	t.Parallel()
	eachOf(t, onBoth, map[string]func(*bundle){
		"it is too late": func(b *bundle) { b.backdate("x", 2*time.Minute) },
		"its id is used again": func(b *bundle) {
			expect.OK(b, b.inspector.DeleteTask(b.queue, "x"))
			b.enqueue(b.job(2), queue.Options{TaskID: "x", Delay: time.Hour})
		},
	}, func(b *bundle, happens func(*bundle)) {
		b.serve(queue.ServerConfig{Asynq: asynq.Config{DelayedTaskCheckInterval: time.Hour}, Observe: b.observe}, b.run)
		g := b.occupy()
		coalesce := queue.Options{Policy: &queue.Policy{OnBusy: queue.OnBusyCoalesce, MaxWait: time.Minute}}
		named := coalesce
		named.TaskID = "x"
		b.enqueueWaiter(1, 1, named)
		happens(b)
		id := b.enqueue(b.job(1), coalesce)
		expect.Eventually(b, "it has come", func() bool { return len(b.of(queue.EventParked, id))+len(b.of(queue.EventCoalesced, id)) > 0 })
		expect.Need(b, len(b.of(queue.EventCoalesced, id)) == 0, "want it to wait, have it dropped")
		g.open()
		b.awaitEnd(id)
		b.wantOrder(0, 1)
	})
}

// A task that an operator has run, and that was given back, is not deleted for one that is to replace it.
func TestReplaceKeepsOneThatAnOperatorHasRun(t *testing.T) {
	t.Parallel()
	onOne(t, func(b *bundle) {
		s := b.serve(queue.ServerConfig{}, b.run)
		holder, begun := b.occupy(), b.hold(1)
		b.failOnce(1, context.Canceled)
		replace := queue.Options{Policy: &queue.Policy{OnBusy: queue.OnBusyReplace}}
		id := b.enqueueWaiter(1, 1, replace)
		expect.OK(b, b.inspector.PauseQueue(b.queue))
		holder.open()
		expect.Eventually(b, "a free lock", func() bool { return b.value() == "" })
		b.again(id)
		expect.OK(b, b.inspector.UnpauseQueue(b.queue))
		within(b, patience, "the task", begun.entered)
		done := b.cutShort(s, begun)
		begun.open()
		within(b, patience, "the shutdown", done)
		b.do("SET", b.lockKey(), "another program", "EX", 60)
		b.serve(queue.ServerConfig{Observe: b.observe}, b.run)
		later := b.enqueue(b.job(2), replace)
		b.awaitParked(later, 1)
		b.do("DEL", b.lockKey())
		b.awaitGone(id, later)
		b.wantOrder(0, 1, 1, 2)
	})
}

// A task that has waited for too long does not stop its line, also if a server finds that out under the lock.
func TestLateTaskHoldsNoLine(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bundle) {
		b.serve(queue.ServerConfig{Asynq: asynq.Config{DelayedTaskCheckInterval: time.Hour}}, b.run)
		g := b.occupy()
		id := b.enqueueWaiter(1, 1, queue.Options{Policy: &queue.Policy{MaxWait: time.Hour, OnFailure: queue.OnFailureStop}})
		behind := b.enqueueWaiter(2, 2, queue.Options{})
		b.backdate(id, 2*time.Hour)
		g.open()
		b.awaitState(id, asynq.TaskStateArchived)
		b.awaitGone(behind)
		b.wantOrder(0, 2)
	})
}

// A task whose lock an operator has taken comes behind those who wait, and is parked there, whatever its policy.
func TestPolicyAfterARevocation(t *testing.T) {
	t.Parallel()
	eachOf(t, onOne, actsByPolicy, func(b *bundle, policy queue.Policy) {
		b.serve(queue.ServerConfig{Observe: b.observe, Lock: shortTimes}, b.run)
		revoked, id := b.begin(0, queue.Options{Policy: &policy})
		next := b.hold(1)
		waiters := b.park(1, 0)
		b.revoke()
		within(b, patience, "the task to lose its lock", revoked.ended)
		revoked.open()
		within(b, patience, "the next", next.entered)
		b.awaitParked(id, 1)
		next.open()
		b.awaitGone(append(waiters, id)...)
	})
}

// The time in which a task has run is no wait: it runs again after a shutdown, and after a failure that holds its line.
func TestMaxWaitOfATaskThatHasBegun(t *testing.T) {
	t.Parallel()
	eachOf(t, onBoth, map[string]bool{"failed": false, "given back": true}, func(b *bundle, shuts bool) {
		cfg := queue.ServerConfig{Asynq: asynq.Config{RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 0 }}}
		s := b.serve(cfg, b.run)
		holder, begun := b.occupy(), b.hold(1)
		b.failOnce(1, context.Canceled)
		id := b.enqueueWaiter(1, 1, queue.Options{Policy: &queue.Policy{MaxWait: time.Hour, OnFailure: queue.OnFailureHold}})
		holder.open()
		within(b, patience, "the task", begun.entered)
		b.backdate(id, 2*time.Hour)
		if shuts {
			done := b.cutShort(s, begun)
			begun.open()
			within(b, patience, "the shutdown", done)
			b.serve(cfg, b.run)
		} else {
			begun.open()
		}
		b.awaitEnd(id)
		b.wantOrder(0, 1, 1)
	})
}

// A task that is rejected stops no line, also if it still has the lock of the resource in its header.
func TestRejectedTaskHoldsNoLine(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bundle) {
		b.serve(queue.ServerConfig{}, b.run)
		g, other := b.occupy(), job{Res: b.resource + ":old", N: 1}
		task := asynq.NewTaskWithHeaders(other.Kind(), []byte(`{"res":"`+b.resource+`"}`), map[string]string{
			queue.HeaderResource: other.Res, queue.HeaderPolicy: `{"on_busy":"reject","on_failure":"stop"}`,
		})
		b.awaitState(b.enqueueTask(task), asynq.TaskStateArchived)
		b.awaitGone(b.enqueue(other))
		g.open()
	})
}
