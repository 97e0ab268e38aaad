package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// G1: forty workers of two servers never meet on a resource, and nothing is lost.
func TestMutualExclusion(t *testing.T) {
	t.Parallel()
	eachOf(t, onOne, map[string]func(*bundle){
		"server": func(b *bundle) { b.serve(queue.ServerConfig{Asynq: asynq.Config{Concurrency: 20}}, b.run) },
		"plain":  func(b *bundle) { (&plain{config: asynq.Config{Concurrency: 20}}).serve(b) },
	}, func(b *bundle, start func(*bundle)) {
		const tasks = 200
		ids := b.enqueueJobs(1, tasks, queue.Options{Retries: queue.NoRetries})
		start(b)
		start(b)
		b.awaitGone(ids...)
		expect.Equal(b, "runs", len(b.order()), tasks)
		b.wantCounts(tasks, 0)
		b.wantWaiters()
		expect.Equal(b, "lock", b.value(), "")
	})
}

// G2: waiting archives nothing, uses no retry and counts as no failure.
func TestContentionIsNoFailure(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(queue.ServerConfig{}, b.run)
	once := queue.Options{Retries: queue.NoRetries}
	// Brings one task to its last attempt, by a failure of its own.
	b.failOnce(2, errors.New("own failure"))
	last := b.enqueue(b.job(2), queue.Options{Retries: 1})
	info := b.awaitState(last, asynq.TaskStateRetry)
	expect.Need(b, info.Retried == 1 && info.LastErr == "own failure", "own failure: want it to use a retry, have %+v", info)

	holder, held := b.begin(0, once)
	b.again(last)
	expect.Eventually(b, "the task on its last attempt in line", func() bool { return len(b.waiters()) == 1 })
	waiting := []string{last, b.enqueue(b.job(1), once), b.enqueue(b.job(3), queue.Options{Retries: 5})}
	reason := regexp.MustCompile(fmt.Sprintf(`^waits for %s, held by test:job %s on \S+ \(pid \d+\)$`, regexp.QuoteMeta(b.resource), held))
	for i, want := range []struct{ retried, retries int }{{1, 1}, {0, 0}, {0, 5}} {
		info := b.awaitState(waiting[i], asynq.TaskStateRetry)
		expect.That(b, info.Retried == want.retried && info.MaxRetry == want.retries,
			"task %d: want %+v, have %d of %d", i, want, info.Retried, info.MaxRetry)
		expect.That(b, reason.MatchString(info.LastErr), "task %d: want the reason %s, have %q", i, reason, info.LastErr)
	}
	if info := b.stats(); info.Processed != 1 || info.Failed != 1 || info.Archived != 0 {
		b.Errorf("while they wait: want the own failure counted alone, have %+v", info)
	}
	holder.open()
	b.awaitGone(append(waiting, held)...)
	b.wantCounts(5, 1)
}

func TestOwnFailures(t *testing.T) {
	t.Parallel()
	cause, panics, exits := errors.New("no such order"), errors.New("out of stock"), errors.New("the handler ended its goroutine (runtime.Goexit)")
	expect.That(t, queue.Permanent(nil) == nil && errors.Is(queue.Permanent(cause), cause), "want nil of nil, and the cause in any other")
	type row struct {
		err     error
		retries int
		state   asynq.TaskState
		retried int
	}
	eachOf(t, onOne, map[string]row{
		"counted":                               {cause, 1, asynq.TaskStateRetry, 1},
		"archived when the retries are used up": {cause, queue.NoRetries, asynq.TaskStateArchived, 0},
		"permanent: archived at once":           {queue.Permanent(cause), 5, asynq.TaskStateArchived, 0},
		"permanent, wrapped":                    {fmt.Errorf("audit: %w", queue.Permanent(cause)), 5, asynq.TaskStateArchived, 0},
		"permanent, as a second lock is busy":   {queue.Permanent(fmt.Errorf("stock: %w", lock.ErrBusy)), 5, asynq.TaskStateArchived, 0},
		"permanent, as something is missing":    {queue.Permanent(queue.Unavailable(cause)), 5, asynq.TaskStateArchived, 0},
		"a panic":                               {panics, queue.NoRetries, asynq.TaskStateArchived, 0},
		"runtime.Goexit":                        {exits, queue.NoRetries, asynq.TaskStateArchived, 0},
	}, func(b *bundle, tt row) {
		b.act(0, func() error {
			switch {
			case errors.Is(tt.err, panics):
				panic(panics)
			case errors.Is(tt.err, exits):
				runtime.Goexit()
			}
			return tt.err
		})
		logs := newLogs(b)
		b.serve(queue.ServerConfig{Logger: logs.logger, Asynq: asynq.Config{Concurrency: 1}}, b.run)
		id := b.enqueue(b.job(0), queue.Options{Retries: tt.retries})
		info := b.awaitState(id, tt.state)
		says := info.LastErr == tt.err.Error() || errors.Is(tt.err, panics) && strings.HasSuffix(info.LastErr, tt.err.Error())
		expect.That(b, info.Retried == tt.retried && says,
			"want %d retries and %q, have %d and %q", tt.retried, tt.err, info.Retried, info.LastErr)
		if info := b.stats(); info.Processed != 1 || info.Failed != 1 {
			b.Errorf("want 1 processed, 1 failed, have %+v", info)
		}
		logs.once(b, "task_id="+id+" task_kind=", slog.LevelInfo, slog.LevelError)
		expect.Equal(b, "lock", b.value(), "")
		b.awaitGone(b.enqueue(b.job(1))) // its slot is free
	})
}

// A handler finds its attempt described in its context, guarded or not.
func TestInfoAndFence(t *testing.T) {
	t.Parallel()
	b := setup(t)
	infos := make(chan queue.Info, 2)
	s := b.newServer(queue.ServerConfig{})
	queue.Handle(s, func(ctx context.Context, _ job) error {
		expect.That(t, lock.Fence(ctx, b.resource) != 0, "fence of a guarded task: want one, have 0")
		infos <- queue.InfoFrom(ctx)
		return nil
	})
	queue.Handle(s, func(ctx context.Context, _ note) error {
		expect.Equal(t, "fence of an unguarded task", lock.Fence(ctx, queue.InfoFrom(ctx).Resource), 0)
		infos <- queue.InfoFrom(ctx)
		return nil
	})
	start(t, s)

	id := b.enqueue(b.job(0), queue.Options{Retries: 3})
	want := queue.Info{ID: id, Queue: b.queue, Kind: "test:job", Resource: b.resource, Retries: 3}
	expect.Equal(t, "guarded", within(t, patience, "a run", infos), want)
	id = b.enqueue(note{}, queue.Options{Retries: 3})
	want = queue.Info{ID: id, Queue: b.queue, Kind: "test:note", Retries: 3}
	expect.Equal(t, "unguarded", within(t, patience, "a run", infos), want)
}

// A handler that sets Reentrant can take the lock of its own resource again, under its own fence.
// It can also take those of other resources.
func TestHandlerTakesItsLockAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	answers := make(chan error, 1)
	b.serveWithLocker(queue.ServerConfig{}, func(ctx context.Context, locker *lock.Locker, _ job) error {
		fence := lock.Fence(ctx, b.resource)
		err := locker.Do(ctx, b.resource, &lock.Options{Reentrant: true}, func(ctx context.Context) error {
			if have := lock.Fence(ctx, b.resource); have != fence {
				return fmt.Errorf("want fence %d, have %d", fence, have)
			}
			return locker.Do(ctx, b.resource+"/other", nil, nothing)
		})
		if v := b.value(); !strings.HasPrefix(v, "siding:") { //nolint:contextcheck // the test's
			err = errors.Join(err, fmt.Errorf("want the task's lock still held, have %q", v))
		}
		answers <- err
		return nil
	})
	id := b.enqueue(b.job(0))
	expect.OK(t, within(t, patience, "a run", answers))
	b.awaitGone(id)
}

// The lease of a task's own lock is as good as the server's renewals make it, however long the handler has run.
func TestHandlerRenewsItsLock(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bundle) {
		answers := make(chan error, 1)
		b.serveWithLocker(queue.ServerConfig{Lock: longLease}, func(ctx context.Context, locker *lock.Locker, _ job) error {
			answers <- func() error {
				held, err := locker.Acquire(ctx, b.resource, &lock.Options{Reentrant: true})
				if err != nil {
					return err
				}
				first := held.Deadline()
				moved := expect.Until(ctx, func() error {
					if have := held.Deadline(); !have.After(first) {
						return fmt.Errorf("want a deadline after %v, have %v", first, have)
					}
					return nil
				})
				return errors.Join(moved, held.Renew(ctx), held.Release(ctx))
			}()
			return nil
		})
		b.enqueue(b.job(0), queue.Options{Timeout: 10 * time.Second})
		expect.OK(b, within(b, patience, "a run", answers))
	})
}

// A handler whose lock was lost cannot take it again, nor anew, while it cleans up.
func TestHandlerTakesALostLockAgain(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bundle) {
		began, answers := make(chan struct{}, 2), make(chan error, 2)
		b.serveWithLocker(queue.ServerConfig{Lock: longLease}, func(ctx context.Context, locker *lock.Locker, _ job) error {
			began <- struct{}{}
			<-ctx.Done()
			answers <- locker.Do(context.WithoutCancel(ctx), b.resource, &lock.Options{Reentrant: true}, nothing)
			return ctx.Err()
		})
		b.enqueue(b.job(0))
		within(b, patience, "the holder", began)
		expect.OK(b, b.rdb.Del(b.Context(), b.lockKey()).Err())
		expect.Is(b, "the lock again", within(b, patience, "the loss", answers), lock.ErrLost)
	})
}

// A handler that asks for its own lock by another Locker finds it busy. That
// is a failure of its own, too.
func TestHandlerWaitsForItself(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(queue.ServerConfig{}, func(ctx context.Context, _ job) error {
		return b.locker.Do(ctx, b.resource, nil, func(context.Context) error { return nil })
	})
	info := b.awaitState(b.enqueue(b.job(1), queue.Options{Retries: queue.NoRetries}), asynq.TaskStateArchived)
	expect.That(t, strings.Contains(info.LastErr, b.resource), "want a reason that names %s, have %q", b.resource, info.LastErr)
}

// Tasks that take the same two locks in opposite order do not keep each other from both for ever, also if all of them wait for
// the second one for as long.
func TestSecondLocksInOppositeOrder(t *testing.T) {
	t.Parallel()
	eachOf(t, onBoth, map[string]time.Duration{"without a wait": 0, "with a wait": 3 * time.Second}, func(b *bundle, wait time.Duration) {
		if wait > 0 {
			verify.Long(b.T)
		}
		const pairs = 8
		b.serveWithLocker(queue.ServerConfig{}, func(ctx context.Context, locker *lock.Locker, j job) error {
			if err := sleep.For(ctx, 50*time.Millisecond); err != nil { // it works, and the other one begins
				return err
			}
			return locker.Do(ctx, fmt.Sprint(b.resource, j.N^1), &lock.Options{Wait: wait}, nothing)
		})
		ids := make([]string, 2*pairs)
		for n := range ids {
			ids[n] = b.enqueue(job{Res: fmt.Sprint(b.resource, n), N: n}, queue.Options{Retries: queue.NoRetries})
		}
		b.awaitGone(ids...)
	})
}

// A handler that takes the lock of its own resource again without Reentrant has a bug, and no later
// run can do better. So the task fails, and is archived with a reason that says what to do. It does
// not wait for itself.
func TestHandlerForgetsReentrant(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bundle) {
		var runs atomic.Int32
		b.serveWithLocker(queue.ServerConfig{}, func(ctx context.Context, locker *lock.Locker, _ job) error {
			runs.Add(1)
			return locker.Do(ctx, b.resource, &lock.Options{Wait: lock.Forever}, nothing)
		})
		info := b.awaitState(b.enqueue(b.job(1), queue.Options{Retries: queue.NoRetries}), asynq.TaskStateArchived)
		expect.That(b, strings.Contains(info.LastErr, b.resource) && strings.Contains(info.LastErr, "set Options.Reentrant") && runs.Load() == 1,
			"want one run, and a reason that names %s and Options.Reentrant, have %d runs and %q", b.resource, runs.Load(), info.LastErr)
		b.soonFree(b.resource)
	})
}
