package queue_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// G1: forty workers of two servers never meet on a resource, and nothing is lost.
func TestMutualExclusion(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*testing.T, *bundle, *stage){
		"server": func(t *testing.T, b *bundle, st *stage) {
			t.Helper()
			b.serve(t, queue.ServerConfig{Asynq: asynq.Config{Concurrency: 20}}, st.run)
		},
		"plain": func(t *testing.T, b *bundle, st *stage) {
			t.Helper()
			(&plain{config: asynq.Config{Concurrency: 20}}).serve(t, b, st)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const tasks = 200
			b, st := setup(t), newStage(t)
			ids := b.enqueueJobs(t, 1, tasks, queue.Options{Retries: queue.NoRetries})
			start(t, b, st)
			start(t, b, st)
			b.awaitGone(t, ids...)
			if have := len(st.order()); have != tasks {
				t.Errorf("runs: want %d, have %d", tasks, have)
			}
			if info := b.stats(t); info.Processed != tasks || info.Failed != 0 || info.Size != 0 {
				t.Errorf("want %d processed, none failed, none left, have %+v", tasks, info)
			}
			b.wantWaiters(t)
			if v := b.value(t); v != "" {
				t.Errorf("lock: want it free, have %q", v)
			}
		})
	}
}

// G2: waiting archives nothing, uses no retry and counts as no failure.
func TestContentionIsNoFailure(t *testing.T) {
	t.Parallel()
	t.Run("server", func(t *testing.T) {
		t.Parallel()
		b, st := setup(t), newStage(t)
		b.serve(t, queue.ServerConfig{}, st.run)
		testContention(t, b, st, func(n, retries int) string {
			if retries == 0 {
				retries = queue.NoRetries
			}
			return b.enqueue(t, b.job(n), queue.Options{Retries: retries})
		})
	})
	t.Run("plain client and server", func(t *testing.T) {
		t.Parallel()
		b, st := setup(t), newStage(t)
		var reported atomic.Int32
		p := &plain{
			guardConfig: queue.ServerConfig{Resources: resources()},
			config: asynq.Config{ErrorHandler: asynq.ErrorHandlerFunc(func(context.Context, *asynq.Task, error) {
				reported.Add(1)
			})},
		}
		p.serve(t, b, st)
		testContention(t, b, st, func(n, retries int) string {
			return b.enqueuePlain(t, b.job(n), asynq.MaxRetry(retries))
		})
		if have := reported.Load(); have != 1 { // the own failure of one task
			t.Errorf("error handler: want 1 call, have %d", have)
		}
	})
}

func testContention(t *testing.T, b *bundle, st *stage, enqueue func(n, retries int) string) {
	t.Helper()
	// Brings one task to its last attempt, by a failure of its own.
	failed := false
	st.act(2, func() error {
		if !failed {
			failed = true
			return errors.New("own failure")
		}
		return nil
	})
	last := enqueue(2, 1)
	if info := b.awaitState(t, last, asynq.TaskStateRetry); info.Retried != 1 || info.LastErr != "own failure" {
		t.Fatalf("own failure: want it to use a retry, have %+v", info)
	}

	holder := st.hold(0)
	ids := []string{enqueue(0, 0)}
	within(t, patience, "the holder", holder.entered)
	must(t, b.inspector.RunTask(b.queue, last))
	poll.Eventually(t, "the task on its last attempt in line", func() bool { return len(b.waiters(t)) == 1 })
	ids = append(ids, last, enqueue(1, 0), enqueue(3, 5))
	reason := regexp.MustCompile(fmt.Sprintf(`^waits for %s, held by (test:job )?%s on \S+ \(pid \d+\)$`, regexp.QuoteMeta(b.resource), ids[0]))
	for i, want := range []struct{ retried, retries int }{{1, 1}, {0, 0}, {0, 5}} {
		info := b.awaitState(t, ids[i+1], asynq.TaskStateRetry)
		if info.Retried != want.retried || info.MaxRetry != want.retries {
			t.Errorf("task %d: want %+v, have %d of %d", i, want, info.Retried, info.MaxRetry)
		}
		if !reason.MatchString(info.LastErr) {
			t.Errorf("task %d: want the reason %s, have %q", i, reason, info.LastErr)
		}
	}
	if info := b.stats(t); info.Processed != 1 || info.Failed != 1 || info.Archived != 0 {
		t.Errorf("while they wait: want the own failure counted alone, have %+v", info)
	}
	holder.open()
	b.awaitGone(t, ids...)
	if info := b.stats(t); info.Processed != 5 || info.Failed != 1 || info.Size != 0 {
		t.Errorf("want 5 processed, 1 failed, none left, have %+v", info)
	}
}

func TestOwnFailures(t *testing.T) {
	t.Parallel()
	cause := errors.New("no such order")
	if queue.Permanent(nil) != nil || !errors.Is(queue.Permanent(cause), cause) {
		t.Error("want nil of nil, and the cause in any other")
	}
	for _, tt := range []struct {
		name    string
		err     error
		retries int
		state   asynq.TaskState
		retried int
	}{
		{"counted", cause, 1, asynq.TaskStateRetry, 1},
		{"archived when the retries are used up", cause, queue.NoRetries, asynq.TaskStateArchived, 0},
		{"permanent: archived at once", queue.Permanent(cause), 5, asynq.TaskStateArchived, 0},
		{"permanent, wrapped", fmt.Errorf("audit: %w", queue.Permanent(cause)), 5, asynq.TaskStateArchived, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b, st := setup(t), newStage(t)
			st.act(0, func() error { return tt.err })
			logs := newLogs(t)
			b.serve(t, queue.ServerConfig{Logger: logs.logger}, st.run)
			id := b.enqueue(t, b.job(0), queue.Options{Retries: tt.retries})
			info := b.awaitState(t, id, tt.state)
			if info.Retried != tt.retried || info.LastErr != tt.err.Error() {
				t.Errorf("want %d retries and %q, have %d and %q", tt.retried, tt.err, info.Retried, info.LastErr)
			}
			if info := b.stats(t); info.Processed != 1 || info.Failed != 1 {
				t.Errorf("want 1 processed, 1 failed, have %+v", info)
			}
			poll.Eventually(t, "the failure in the log", func() bool { return len(logs.lines("task_id="+id+" ", 0, 8)) > 0 })
			if have := logs.lines("task_id="+id+" ", 0, 8); len(have) != 1 {
				t.Errorf("want the failure logged once, have %q", have)
			}
			if v := b.value(t); v != "" {
				t.Errorf("lock: want it free, have %q", v)
			}
		})
	}
}

// A handler finds its attempt described in its context, guarded or not.
func TestInfoAndFence(t *testing.T) {
	t.Parallel()
	b := setup(t)
	infos := make(chan queue.Info, 2)
	s := b.newServer(t, queue.ServerConfig{})
	queue.Handle(s, func(ctx context.Context, _ job) error {
		if lock.Fence(ctx, b.resource) == 0 {
			t.Error("fence of a guarded task: want one, have 0")
		}
		infos <- queue.InfoFrom(ctx)
		return nil
	})
	queue.Handle(s, func(ctx context.Context, _ note) error {
		if f := lock.Fence(ctx, queue.InfoFrom(ctx).Resource); f != 0 {
			t.Errorf("fence of an unguarded task: want 0, have %d", f)
		}
		infos <- queue.InfoFrom(ctx)
		return nil
	})
	start(t, s)

	id := b.enqueue(t, b.job(0), queue.Options{Retries: 3})
	want := queue.Info{ID: id, Queue: b.queue, Kind: "test:job", Resource: b.resource, Retries: 3}
	if have := within(t, patience, "a run", infos); have != want {
		t.Errorf("guarded: want %+v, have %+v", want, have)
	}
	id = b.enqueue(t, note{}, queue.Options{Retries: 3})
	want = queue.Info{ID: id, Queue: b.queue, Kind: "test:note", Retries: 3}
	if have := within(t, patience, "a run", infos); have != want {
		t.Errorf("unguarded: want %+v, have %+v", want, have)
	}
}

// A handler that sets Reentrant can take the lock of its own resource again, under its own fence.
// It can also take those of other resources.
func TestHandlerTakesItsLockAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	answers := make(chan error, 1)
	var s *queue.Server
	ready := make(chan struct{})
	s = b.serve(t, queue.ServerConfig{}, func(ctx context.Context, _ job) error {
		<-ready
		fence := lock.Fence(ctx, b.resource)
		err := s.Locker().Do(ctx, b.resource, &lock.Options{Reentrant: true}, func(ctx context.Context) error {
			if have := lock.Fence(ctx, b.resource); have != fence {
				return fmt.Errorf("want fence %d, have %d", fence, have)
			}
			return s.Locker().Do(ctx, b.resource+"/other", nil, func(context.Context) error { return nil })
		})
		if v := b.value(t); !strings.HasPrefix(v, "siding:") { //nolint:contextcheck // the test's
			err = errors.Join(err, fmt.Errorf("want the task's lock still held, have %q", v))
		}
		answers <- err
		return nil
	})
	close(ready)
	id := b.enqueue(t, b.job(0), queue.Options{})
	if err := within(t, patience, "a run", answers); err != nil {
		t.Error(err)
	}
	b.awaitGone(t, id)
}

// A handler that asks for its own lock by another Locker finds it busy. That
// is a failure of its own, too.
func TestHandlerWaitsForItself(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(t, queue.ServerConfig{}, func(ctx context.Context, _ job) error {
		return b.locker.Do(ctx, b.resource, nil, func(context.Context) error { return nil })
	})
	info := b.awaitState(t, b.enqueue(t, b.job(1), queue.Options{Retries: queue.NoRetries}), asynq.TaskStateArchived)
	if !strings.Contains(info.LastErr, b.resource) {
		t.Errorf("want a reason that names %s, have %q", b.resource, info.LastErr)
	}
}

// Tasks that take the same two locks in opposite order do not keep each other from both for ever, also if all of them wait for
// the second one for as long.
func TestSecondLocksInOppositeOrder(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]time.Duration{"without a wait": 0, "with a wait": 3 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if wait > 0 {
				verify.Long(t)
			}
			onBoth(t, func(t *testing.T, b *bundle) {
				t.Helper()
				const pairs = 8
				var server *queue.Server
				ready := make(chan struct{})
				server = b.serve(t, queue.ServerConfig{}, func(ctx context.Context, j job) error {
					<-ready
					if err := sleep.For(ctx, 50*time.Millisecond); err != nil { // it works, and the other one begins
						return err
					}
					return server.Locker().Do(ctx, fmt.Sprint(b.resource, j.N^1), &lock.Options{Wait: wait}, func(context.Context) error { return nil })
				})
				ids := make([]string, 2*pairs)
				for n := range ids {
					ids[n] = b.enqueue(t, job{Res: fmt.Sprint(b.resource, n), N: n}, queue.Options{Retries: queue.NoRetries})
				}
				close(ready)
				b.awaitGone(t, ids...)
			})
		})
	}
}

// A handler that takes the lock of its own resource again without Reentrant has a bug, and no later
// run can do better. So the task fails, and is archived with a reason that says what to do. It does
// not wait for itself.
func TestHandlerForgetsReentrant(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		t.Helper()
		var server *queue.Server
		var runs atomic.Int32
		ready := make(chan struct{})
		server = b.serve(t, queue.ServerConfig{}, func(ctx context.Context, _ job) error {
			<-ready
			runs.Add(1)
			return server.Locker().Do(ctx, b.resource, &lock.Options{Wait: lock.Forever}, func(context.Context) error { return nil })
		})
		close(ready)
		info := b.awaitState(t, b.enqueue(t, b.job(1), queue.Options{Retries: queue.NoRetries}), asynq.TaskStateArchived)
		if !strings.Contains(info.LastErr, b.resource) || !strings.Contains(info.LastErr, "set Options.Reentrant") || runs.Load() != 1 {
			t.Errorf("want one run, and a reason that names %s and Options.Reentrant, have %d runs and %q", b.resource, runs.Load(), info.LastErr)
		}
		b.soonFree(t, b.resource)
	})
}
