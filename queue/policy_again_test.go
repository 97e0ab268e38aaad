package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/testenv/poll"
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
func (b *bundle) awaitParked(t *testing.T, j *journal, id string, n int) {
	t.Helper()
	poll.Eventually(t, "the task parked", func() bool {
		if j.byPolicy() > 0 {
			t.Fatal("want the task parked, have one ended by its policy")
		}
		return len(j.of(queue.EventParked, id)) >= n
	})
	b.awaitState(t, id, asynq.TaskStateRetry)
}

// comeAgain has a task that waits come now, as an operator does. In a Cluster it may just have come by itself.
func (b *bundle) comeAgain(t *testing.T, id string) {
	t.Helper()
	poll.Eventually(t, "the task run by an operator", func() bool { return b.inspector.RunTask(b.queue, id) == nil })
}

// A task that has begun and lost its lock is parked when it finds the lock busy, each time from then on.
func TestPolicyAfterALoss(t *testing.T) {
	t.Parallel()
	for name, policy := range actsByPolicy {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(t *testing.T, b *bundle) {
				t.Helper()
				st, j := newStage(t), &journal{}
				st.unsafe = true // its lock is taken away before it learns of that
				b.serve(t, queue.ServerConfig{Observe: j.observe, Lock: shortTimes}, st.run)
				first, id := b.begin(t, st, 0, queue.Options{Policy: &policy})
				waiter := b.enqueueWaiter(t, 1, 1, queue.Options{})
				var o queue.Options
				if policy.OnBusy == queue.OnBusyCoalesce || policy.OnBusy == queue.OnBusyReplace {
					o.Policy = &policy
				}
				equal := b.enqueueWaiter(t, 0, 2, o)
				b.do(t, "SET", b.lockKey(), "another program", "EX", 60)
				within(t, patience, "the task to lose its lock", first.ended)
				first.open()
				b.awaitParked(t, j, id, 1)
				b.comeAgain(t, id)
				b.awaitParked(t, j, id, 2)
				b.do(t, "DEL", b.lockKey())
				b.awaitGone(t, id, waiter, equal)
				if runs := st.awaitRuns(4); b.isCluster() && runs[1] == 1 {
					st.wantOrder(0, 1, 0, 0) // the waiter had begun to ask the lock's own node before the other came back
				} else {
					st.wantOrder(0, 0, 1, 0)
				}
				if n := j.byPolicy(); n > 0 {
					t.Errorf("want no task ended by its policy, have %d", n)
				}
			})
		})
	}
}

// A task that waited, began and lost its lock is not deleted for one that is to replace it.
func TestReplaceKeepsOneThatHasBegun(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st, j := newStage(t), &journal{}
		st.unsafe = true // its lock is taken away before it learns of that
		b.serve(t, queue.ServerConfig{Observe: j.observe, Lock: shortTimes}, st.run)
		holder, begun := b.occupy(t, st), st.hold(1)
		replace := queue.Options{Policy: &queue.Policy{OnBusy: queue.OnBusyReplace}}
		id := b.enqueueWaiter(t, 1, 1, replace)
		holder.open()
		within(t, patience, "the task", begun.entered)
		waiter := b.enqueueWaiter(t, 2, 1, queue.Options{})
		b.do(t, "SET", b.lockKey(), "another program", "EX", 60)
		within(t, patience, "the task to lose its lock", begun.ended)
		begun.open()
		b.awaitParked(t, j, id, 2)
		later := b.enqueue(t, b.job(3), replace)
		b.awaitParked(t, j, later, 1)
		b.do(t, "DEL", b.lockKey())
		b.awaitGone(t, id, waiter, later)
		if runs := st.awaitRuns(5); b.isCluster() && runs[2] == 2 {
			st.wantOrder(0, 1, 2, 1, 3) // the waiter had begun to ask the lock's own node before the other came back
		} else {
			st.wantOrder(0, 1, 1, 2, 3)
		}
	})
}

// A task that was at work when its server shut down is parked when it finds the lock busy.
func TestPolicyAfterAShutdown(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st, j := newStage(t), &journal{}
		s := b.serve(t, queue.ServerConfig{}, st.run)
		begun := st.hold(0)
		st.failOnce(0)
		id := b.enqueue(t, b.job(0), queue.Options{Policy: &queue.Policy{OnBusy: queue.OnBusyReject}})
		within(t, patience, "the task", begun.entered)
		done := b.cutShort(t, s, begun)
		begun.open()
		within(t, patience, "the shutdown", done)
		must(t, b.rdb.Set(t.Context(), b.lockKey(), "another program", time.Minute).Err())
		b.serve(t, queue.ServerConfig{Observe: j.observe}, st.run)
		b.comeAgain(t, id)
		b.awaitParked(t, j, id, 1)
		rejected := b.enqueue(t, b.job(1), queue.Options{Policy: &queue.Policy{OnBusy: queue.OnBusyReject}})
		b.awaitState(t, rejected, asynq.TaskStateArchived) // a new one is
		must(t, b.rdb.Del(t.Context(), b.lockKey()).Err())
		b.awaitGone(t, id)
		st.wantOrder(0, 0)
	})
}

// OnMaxWait is called until it succeeds. The handler does not run, although the lock is free, and whoever finds out that it is
// too late: a step when the time is over, or the server that gets the lock for the task before that.
func TestOnMaxWaitFails(t *testing.T) {
	t.Parallel()
	for name, maxWait := range map[string]time.Duration{"waits on": time.Second, "has its lock": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(t *testing.T, b *bundle) {
				t.Helper()
				st, j := newStage(t), &journal{}
				calls := make(chan int, 10)
				b.serve(t, queue.ServerConfig{
					Asynq:   asynq.Config{RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 0 }},
					Observe: j.observe, OnMaxWait: func(ctx context.Context, _ *asynq.Task) error {
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
				}, st.run)
				g := b.occupy(t, st)
				id := b.enqueue(t, b.job(1), queue.Options{Retries: 5, Policy: &queue.Policy{MaxWait: maxWait}})
				if maxWait == time.Hour {
					j.await(t, queue.EventParked, id, 1)
					b.backdate(t, id, 2*time.Hour)
					g.open()
				}
				if n := within(t, patience, "OnMaxWait", calls); n != 0 {
					t.Errorf("want no retry used at first, have %d", n)
				}
				if maxWait != time.Hour {
					g.open()
				}
				b.awaitGone(t, id)
				if have := len(j.of(queue.EventWaitedTooLong, id)); have != 3 {
					t.Errorf("want three calls of OnMaxWait told, have %d", have)
				}
				st.wantOrder(0)
			})
		})
	}
}

// An operator runs a task that was archived as too late. It runs, and so does its retry.
func TestLateTaskIsRunByAnOperator(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st := newStage(t)
		b.serve(t, queue.ServerConfig{Asynq: asynq.Config{RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 0 }}}, st.run)
		g := b.occupy(t, st)
		id := b.enqueue(t, b.job(1), queue.Options{Retries: 1, Policy: &queue.Policy{MaxWait: time.Second}})
		b.awaitState(t, id, asynq.TaskStateArchived)
		g.open()
		failed := false
		st.act(1, func() error {
			if !failed {
				failed = true
				return errors.New("a failure of its own")
			}
			return nil
		})
		must(t, b.inspector.RunTask(b.queue, id))
		b.awaitGone(t, id)
		st.wantOrder(0, 1, 1)
	})
}

// A worker dies while it ends a task that has waited for too long. Another one ends the task, and does not
// run it.
func TestLateTaskOfAKilledWorker(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st, j := newStage(t), &journal{}
		var victim mortal
		victim.guardConfig.Lock.TTL = 15 * time.Second // also on a slow machine the holder keeps its lock
		called := make(chan struct{})
		victim.guardConfig.OnMaxWait = func(ctx context.Context, _ *asynq.Task) error {
			close(called)
			<-t.Context().Done()
			return context.Cause(ctx)
		}
		victim.serve(t, b, st)
		g := b.occupy(t, st)
		id := b.enqueue(t, b.job(1), queue.Options{Policy: &queue.Policy{MaxWait: time.Second}})
		within(t, patience, "OnMaxWait", called)
		g.open()
		// Or the holder would run again, too.
		poll.Eventually(t, "the lock released and its holder done", func() bool { return b.value(t) == "" && b.stats(t).Active == 1 })
		victim.dead.Store(true)
		b.silence(t, id)
		cfg := quickRecovery
		cfg.Observe = j.observe
		b.serve(t, cfg, st.run)
		j.await(t, queue.EventRecovered, id, 1)
		j.await(t, queue.EventWaitedTooLong, id, 1)
		if info := b.awaitState(t, id, asynq.TaskStateArchived); info.Retried != 0 {
			t.Errorf("want no retry used, have %d", info.Retried)
		}
		st.wantOrder(0)
	})
}
