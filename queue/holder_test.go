package queue_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/queue"
)

// G4: a holder that was killed renews no more. Its lock expires, and the fallback time of the first
// in the wait queue comes within a second. A server with the default interval then finds that task
// within another.
func TestHolderKilled(t *testing.T) {
	t.Parallel()
	b, st := setup(t), newStage(t)
	cfg := lock.Config{TTL: 6 * time.Second}
	ends := make(chan time.Time, 100) // of the lock, as a waiter was told
	b.serve(t, queue.ServerConfig{Guard: queue.GuardConfig{Lock: cfg, Observe: func(e queue.Event) {
		var busy *lock.BusyError
		if e.Kind == queue.EventParked && errors.As(e.Err, &busy) {
			ends <- time.Now().Add(busy.Remaining)
		}
	}}}, st.run)
	locker, err := lock.New(lock.Redis(b.rdb), cfg)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	held, err := locker.Acquire(t.Context(), b.resource, nil)
	if err != nil {
		t.Fatal(err)
	}
	held.Detach()
	ids := b.park(t, 1, 2)
	end := within(t, patience, "the first to be parked", ends)
	st.awaitRuns(1)
	if took := time.Since(start); took < cfg.TTL {
		t.Errorf("want it to run when the lock has run out, have %v", took)
	}
	if late := time.Since(end); late > promised(2*time.Second) {
		t.Errorf("want it to run within 2 s of the lock's end, have %v", late)
	}
	b.awaitGone(t, ids...)
	st.wantOrder(1, 2)
}

// A handler that panics, or ends its goroutine, releases its lock at once.
func TestHandlerDoesNotReturn(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(){
		"panic":  func() { panic("out of stock") },
		"goexit": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, st, j := setup(t), newStage(t), &journal{}
			b.serve(t, queue.ServerConfig{Guard: queue.GuardConfig{Observe: j.observe}}, st.run)
			holder := st.hold(0)
			first := true
			st.act(0, func() error {
				if first {
					first = false
					end()
				}
				return nil
			})
			id := b.enqueue(t, b.job(0), queue.Options{Timeout: 2 * time.Second})
			within(t, patience, "the holder", holder.entered)
			next := b.park(t, 1)
			start := time.Now()
			holder.open()
			b.awaitGone(t, next...)
			if took := time.Since(start); took > prompt {
				t.Errorf("the next: want it at once, have %v", took)
			}
			// asynq learns of a Goexit by the timeout only. Both are the task's own failure.
			if info := b.awaitState(t, id, asynq.TaskStateRetry); info.Retried != 1 {
				t.Errorf("want it to use a retry, have %+v", info)
			}
			if have := j.of(queue.EventReleased, id); len(have) != 1 || have[0].Err == nil {
				t.Errorf("want its observer told of a failure, have %+v", have)
			}
		})
	}
}

// A zombie: asynq has given up on a handler whose time is over, but it goes on. The lock of the
// task is held until the handler has returned; the task's next attempt and all others wait.
func TestZombieKeepsTheLock(t *testing.T) {
	t.Parallel()
	b, st := setup(t), newStage(t)
	cfg := shortTimes // is renewed, also for a zombie
	b.serve(t, queue.ServerConfig{Guard: queue.GuardConfig{Lock: cfg}}, st.run)
	zombie := st.hold(0)
	id := b.enqueue(t, b.job(0), queue.Options{Timeout: time.Second})
	within(t, patience, "the holder", zombie.entered)
	held := b.value(t)
	if info := b.awaitState(t, id, asynq.TaskStateRetry); info.Retried != 1 || info.LastErr != context.DeadlineExceeded.Error() {
		t.Errorf("want the timeout to use a retry, have %+v", info)
	}
	next := b.park(t, 1)
	if err := b.inspector.RunTask(b.queue, id); err != nil {
		t.Fatal(err)
	}
	poll.Eventually(t, "the task's second attempt in the wait queue", func() bool { return len(b.waiters(t)) == 2 })
	b.awaitState(t, id, asynq.TaskStateRetry)
	steadily(t, cfg.TTL+time.Second, "the lock with the zombie", func() bool { return b.value(t) == held })
	st.wantOrder(0)
	zombie.open()
	b.awaitGone(t, append(next, id)...)
	st.wantOrder(0, 1, 0)
}

// A zombie that reaches the lock only after its context has ended must not run its handler, and
// releases the lock.
func TestSupersededAttemptOnArrivalGivesBack(t *testing.T) {
	t.Parallel()
	b, st := setupStepwise(t), newStage(t)
	taken, answer := make(chan struct{}), make(chan struct{})
	p := &plain{onLocks: func(_ context.Context, cmd redis.Cmder, send func() error) error {
		err := send()
		if isAcquire(cmd) && err == nil {
			select {
			case <-taken: // later attempts
			default:
				close(taken)
				<-answer // Redis has answered, but so late
			}
		}
		return err
	}}
	p.serve(t, b, st)
	b.enqueue(t, b.job(0), queue.Options{TaskID: "zombie", Timeout: time.Second})
	within(t, patience, "the lock to be taken", taken)
	if v := b.value(t); !strings.HasPrefix(v, "siding:") {
		t.Errorf("lock: want it taken, have %q", v)
	}
	b.awaitState(t, "zombie", asynq.TaskStateRetry)
	close(answer)
	poll.Eventually(t, "a free lock", func() bool { return b.value(t) == "" })
	if have := st.order(); len(have) != 0 {
		t.Errorf("want no run, have %v", have)
	}
}

// A handler that ignores its ended context for longer than the limit is reported. Its lock is no
// longer renewed, so that the resource is not held for ever. The reservation of a task on an
// external store ends in the same way.
func TestOverrun(t *testing.T) {
	t.Parallel()
	cfg := lock.Config{TTL: time.Second}
	for name, locks := range map[string]func(*testing.T) queue.GuardConfig{
		"own lock": func(*testing.T) queue.GuardConfig { return queue.GuardConfig{Lock: cfg} },
		"given locker": func(t *testing.T) queue.GuardConfig {
			t.Helper()
			return queue.GuardConfig{Store: locktest.NewMemory(), Lock: cfg}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, st, logs, j := setup(t), newStage(t), newLogs(t), &journal{}
			st.unsafe = true // the guard gives the zombie up
			p := &plain{guardConfig: locks(t)}
			p.guardConfig.Overrun, p.guardConfig.Logger, p.guardConfig.Observe = 300*time.Millisecond, logs.logger, j.observe
			p.serve(t, b, st)
			zombie := st.hold(0)
			id := b.enqueue(t, b.job(0), queue.Options{Timeout: time.Second})
			within(t, patience, "the holder", zombie.entered)
			poll.Eventually(t, "a report", func() bool { return len(logs.lines("ignores its ended context", slog.LevelError)) == 1 })
			poll.Eventually(t, "lock and turn to run out", func() bool {
				n, err := b.rdb.Exists(t.Context(), b.lockKey()).Result()
				waiting, werr := b.rdb.Exists(t.Context(), b.waitLockKey()).Result() // maybe in another slot
				return err == nil && werr == nil && n+waiting == 0
			})
			b.awaitGone(t, b.enqueue(t, b.job(1)))
			zombie.open()
			j.await(t, queue.EventLost, id, 1)
		})
	}
}

// takenFrom deletes the lock of the resource, an operator's slip, and somebody else has it
// for a moment.
func (b *bundle) takenFrom(t *testing.T) {
	t.Helper()
	if err := b.rdb.Del(t.Context(), b.lockKey()).Err(); err != nil {
		t.Fatal(err)
	}
	lease, err := b.locker.Acquire(t.Context(), b.resource, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// If the lease was lost before the handler returned, the task has neither succeeded nor failed,
// whatever the handler returned.
func TestLeaseLost(t *testing.T) {
	t.Parallel()
	for name, result := range map[string]error{
		"nil":       nil,
		"an error":  errors.New("own failure"),
		"permanent": queue.Permanent(errors.New("own failure")),
		"revoked":   asynq.RevokeTask,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, st, j := setup(t), newStage(t), &journal{}
			b.serve(t, queue.ServerConfig{Guard: queue.GuardConfig{Observe: j.observe}}, st.run)
			holder := st.hold(0)
			outcome := result
			st.act(0, func() error {
				err := outcome
				outcome = nil
				return err
			})
			id := b.enqueue(t, b.job(0), queue.Options{Retries: queue.NoRetries})
			within(t, patience, "the holder", holder.entered)
			b.takenFrom(t)
			holder.open()
			if e := j.await(t, queue.EventLost, id, 1); !errors.Is(e.Err, result) {
				t.Errorf("event: want the handler's error, have %v", e.Err)
			}
			b.awaitGone(t, id)
			st.wantOrder(0, 0)
			if info := b.stats(t); info.Failed != 0 || info.Processed != 1 || info.Archived != 0 {
				t.Errorf("want 1 processed, none failed, have %+v", info)
			}
			j.await(t, queue.EventReleased, id, 1) // the event may come a moment after the task is gone
			if have := j.of(queue.EventReleased, id); len(have) != 1 {
				t.Errorf("released: want the second run's, have %+v", have)
			}
		})
	}
}

// The same holds when Redis does not answer at the end. Nobody can say that the lease was valid,
// and it was not.
func TestLeaseLostWhileLocksCannotBeReached(t *testing.T) {
	t.Parallel()
	b, st, j := setup(t), newStage(t), &journal{}
	var away atomic.Bool
	p := &plain{
		guardConfig: queue.GuardConfig{Lock: lock.Config{TTL: time.Second}, Observe: j.observe},
		onLocks: func(_ context.Context, _ redis.Cmder, send func() error) error {
			if away.Load() {
				return errors.New("network is unreachable")
			}
			return send()
		},
	}
	p.serve(t, b, st)
	holder := st.hold(0)
	id := b.enqueue(t, b.job(0), queue.Options{Retries: queue.NoRetries})
	within(t, patience, "the holder", holder.entered)
	away.Store(true)
	within(t, patience, "the holder to give up", holder.ended)
	holder.open()
	j.await(t, queue.EventLost, id, 1)
	away.Store(false)
	b.awaitGone(t, id)
	st.wantOrder(0, 0)
}

// The lease was valid when the handler returned. A release that does not reach Redis changes
// nothing about the handler's work.
func TestReleaseThatCannotBeSent(t *testing.T) {
	t.Parallel()
	b, st, logs := setup(t), newStage(t), newLogs(t)
	var away atomic.Bool
	p := &plain{
		guardConfig: queue.GuardConfig{Lock: lock.Config{TTL: 2 * time.Second}, Logger: logs.logger},
		onLocks: func(_ context.Context, _ redis.Cmder, send func() error) error {
			if away.Load() {
				return errors.New("network is unreachable")
			}
			return send()
		},
	}
	p.serve(t, b, st)
	holder := st.hold(0)
	id := b.enqueue(t, b.job(0))
	within(t, patience, "the holder", holder.entered)
	away.Store(true)
	holder.open()
	b.awaitGone(t, id)
	away.Store(false)
	if have := logs.lines("could not be released", slog.LevelWarn); len(have) != 1 {
		t.Errorf("want it logged, have %q", have)
	}
	b.awaitGone(t, b.enqueue(t, b.job(1))) // the TTL frees the lock
	st.wantOrder(0, 1)
}

// G6: a holder that lost its lock is told: its context ends with the cause. A lock that another has
// taken meanwhile is left as it is.
func TestHolderIsToldOfItsLoss(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cause := make(chan error, 1)
	started := make(chan struct{})
	b.serve(t, queue.ServerConfig{Guard: queue.GuardConfig{Lock: lock.Config{TTL: time.Second}}}, func(ctx context.Context, j job) error {
		if j.N == 0 {
			close(started)
			<-ctx.Done()
			cause <- context.Cause(ctx)
		}
		return ctx.Err()
	})
	b.enqueue(t, b.job(0), queue.Options{Retries: queue.NoRetries})
	within(t, patience, "the holder", started)
	if err := b.rdb.Set(t.Context(), b.lockKey(), "somebody else", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	if err := within(t, prompt, "the context to end", cause); !errors.Is(err, lock.ErrLost) {
		t.Errorf("cause: want ErrLost, have %v", err)
	}
	poll.Eventually(t, "the task parked", func() bool { return b.stats(t).Retry == 1 })
	if v := b.value(t); v != "somebody else" {
		t.Errorf("lock: want it untouched, have %q", v)
	}
}

// Two attempts of one task are two holders. Each attempt has its own token, so the first cannot
// touch the second's lock.
func TestReleaseIsByTokenNotByTask(t *testing.T) {
	t.Parallel()
	b, st := setup(t), newStage(t)
	st.unsafe = true
	b.serve(t, queue.ServerConfig{}, st.run)
	first := st.hold(0)
	id := b.enqueue(t, b.job(0), queue.Options{Timeout: time.Second})
	within(t, patience, "the first attempt", first.entered)
	b.awaitState(t, id, asynq.TaskStateRetry)
	if err := b.rdb.Del(t.Context(), b.lockKey()).Err(); err != nil {
		t.Fatal(err)
	}
	second := st.hold(0)
	if err := b.inspector.RunTask(b.queue, id); err != nil {
		t.Fatal(err)
	}
	within(t, patience, "the second attempt", second.entered)
	held := b.value(t)
	first.open()
	steadily(t, 300*time.Millisecond, "the lock with the second attempt", func() bool { return b.value(t) == held })
	st.wantOrder(0, 0)
	second.open()
}
