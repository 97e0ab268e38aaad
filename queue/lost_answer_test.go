package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// twice sends the scripts of the lock twice, as go-redis does that has lost an answer. The answer
// to the second one counts.
func twice(_ context.Context, cmd redis.Cmder, send func() error) error {
	if hasKeys(cmd, "lock:", ":fence", ":queue", ":paused") || hasKeys(cmd, "lock:", ":fence", ":queue", ":paused", "") || isFinish(cmd) {
		if err := send(); err != nil {
			return err
		}
	}
	return send()
}

// TestLockCallsAreSentTwice: the answer to each call that takes or releases a lock is lost, and the
// client sends it again. Every finished task has run once, and none has lost its lock. Others wait
// for the same resource, and take the lock between the two calls. The first task runs until all
// others wait: a release for which nobody waits is not recorded.
func TestLockCallsAreSentTwice(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, b *bundle) {
		t.Helper()
		const tasks = 30
		st, j := newStage(t), &journal{}
		first := st.hold(0)
		(&plain{onLocks: twice, guardConfig: queue.GuardConfig{Observe: j.observe}}).serve(t, b, st)
		var ids []string
		for n := range tasks {
			ids = append(ids, b.enqueue(t, b.job(n), queue.Options{Retries: queue.NoRetries}))
			if n == 0 {
				within(t, patience, "the first", first.entered)
			}
		}
		poll.Eventually(t, "all others in the wait queue", func() bool { return len(b.waiters(t)) == tasks-1 })
		first.open()
		b.awaitGone(t, ids...)
		if have := len(st.order()); have != tasks {
			t.Errorf("want %d runs, have %d", tasks, have)
		}
		for _, id := range ids {
			if lost := j.of(queue.EventLost, id); len(lost) > 0 {
				t.Errorf("want no lock lost, have %+v", lost)
			}
		}
		if info := b.stats(t); info.Processed != tasks || info.Failed != 0 || info.Size != 0 {
			t.Errorf("want %d processed, none failed, none left, have %+v", tasks, info)
		}
	})
}

// TestPrefetchOfAWaiterIsSentTwice: a task was woken for its lock. The end of another task takes both, and
// the answer to that is lost. The second answer says the same of the wait as the first.
func TestPrefetchOfAWaiterIsSentTwice(t *testing.T) {
	t.Parallel()
	const enough = 20 * time.Millisecond
	b, st, j := setupFast(t), newStage(t), &journal{}
	held, err := b.locker.Acquire(t.Context(), b.resource, nil)
	if err != nil {
		t.Fatal(err)
	}
	(&plain{config: asynq.Config{Concurrency: 1}, onLocks: twice, guardConfig: queue.GuardConfig{Observe: j.observe}}).serve(t, b, st)
	b.awaitListener(t)
	id := b.enqueue(t, b.job(1))
	b.awaitState(t, id, asynq.TaskStateRetry)
	parked := time.Now()
	other := st.hold(0)
	b.enqueue(t, job{Res: b.resource + ":other", N: 0})
	within(t, patience, "the other task", other.entered)
	poll.Eventually(t, "some wait", func() bool { return time.Since(parked) > enough })
	if err := held.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.awaitState(t, id, asynq.TaskStatePending)
	other.open()
	if e := j.await(t, queue.EventAcquired, id, 1); e.Via != queue.ViaHandOff || e.HandOff <= 0 || e.Waited < enough {
		t.Errorf("want a hand-off after %v or more, have %+v", enough, e)
	}
	b.awaitGone(t, id)
}

// TestReleaseIsSentTwice: a task that nobody waits behind keeps its result, too.
func TestReleaseIsSentTwice(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st, j := newStage(t), &journal{}
		(&plain{onLocks: twice, guardConfig: queue.GuardConfig{Observe: j.observe}}).serve(t, b, st)
		id := b.enqueue(t, b.job(1), queue.Options{Retries: queue.NoRetries})
		b.awaitGone(t, id)
		if have := len(st.order()); have != 1 {
			t.Errorf("want one run, have %d", have)
		}
		if lost := j.of(queue.EventLost, id); len(lost) > 0 {
			t.Errorf("want no lock lost, have %+v", lost)
		}
	})
}

// The answer to a release that has started the next task is lost. Before the call comes again, that task
// has lost its lock. The task runs all the same, and is not left to recovery.
func TestStartedTaskLosesItsLockBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(context.Context, *bundle) error{
		"expired": func(ctx context.Context, b *bundle) error { return b.rdb.Del(ctx, "lock:"+b.resource).Err() },
		"revoked": func(ctx context.Context, b *bundle) error {
			_, err := queue.Revoke(ctx, b.rdb, b.revocation())
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, st, j := setupFast(t), newStage(t), &journal{}
			var once sync.Once
			var started atomic.Bool
			between := func(ctx context.Context, cmd redis.Cmder, send func() error) error {
				err := send()
				if err != nil || !isFinishWithLock(cmd) {
					return err
				}
				once.Do(func() {
					started.Store(strings.Contains(fmt.Sprint(cmd.(*redis.Cmd).Val()), "[3 siding:")) //nolint:errcheck,forcetypeassert // a script's
					if err = lose(ctx, b); err == nil {
						err = send()
					}
				})
				return err
			}
			(&plain{config: asynq.Config{Concurrency: 2}, onLocks: between, guardConfig: queue.GuardConfig{Observe: j.observe}}).serve(t, b, st)
			held := st.hold(1)
			first := b.enqueue(t, b.job(1))
			within(t, patience, "the holder", held.entered)
			second := b.enqueue(t, b.job(2), queue.Options{Retries: queue.NoRetries})
			j.await(t, queue.EventParked, second, 1)
			b.awaitListener(t) // the server wants the next waiter
			held.open()
			b.awaitGone(t, first, second)
			if !started.Load() {
				t.Error("want the release to have started the second")
			}
			if have := j.of(queue.EventRecovered, ""); len(have) != 0 {
				t.Errorf("want no recovery, have %+v", have)
			}
			if have := len(j.of(queue.EventAcquired, second)); have == 0 {
				t.Error("want the second to have had its lock")
			}
		})
	}
}

// The lock is lost before the handler starts: the observer is slow, or Redis is slow to record the start of
// a task without retries. The handler does not start then, as somebody else may have the lock. It starts
// once the task has the lock again.
func TestLockIsLostBeforeTheHandlerStarts(t *testing.T) {
	t.Parallel()
	for name, records := range map[string]bool{"Redis is slow to record the start": true, "the observer is slow": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, st, j := setupFast(t), newStage(t), &journal{}
			var once sync.Once
			var over atomic.Bool
			outlast := func() {
				once.Do(func() {
					poll.Eventually(t, "the end of the lock", func() bool { return b.value(t) == "" })
					over.Store(true)
				})
			}
			onLocks := func(_ context.Context, cmd redis.Cmder, send func() error) error {
				if hasKeys(cmd, "lock:", ":fence") && !over.Load() {
					return errors.New("no renewal gets through")
				}
				err := send()
				if err == nil && records && hasKeys(cmd, ":t:") {
					outlast()
				}
				return err
			}
			observe := func(e queue.Event) {
				j.observe(e)
				if e.Kind == queue.EventAcquired && !records {
					outlast()
				}
			}
			(&plain{onLocks: onLocks, guardConfig: queue.GuardConfig{Observe: observe, Lock: lock.Config{TTL: time.Second}}}).serve(t, b, st)
			options := queue.Options{}
			if records {
				options.Retries = queue.NoRetries
			}
			id := b.enqueue(t, b.job(1), options)
			j.await(t, queue.EventLost, id, 1)
			b.awaitGone(t, id)
			st.wantOrder(1)
		})
	}
}
