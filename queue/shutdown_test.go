package queue_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// A shutdown in mid-task: asynq requeues the task after its timeout; the lock
// is held until the handler has returned, and Shutdown waits for both.
func TestShutdownInMidTask(t *testing.T) {
	t.Parallel()
	b, st := setup(t), newStage(t)
	s := b.serve(t, queue.ServerConfig{}, st.run)
	zombie := st.hold(0)
	id := b.enqueue(t, b.job(0), queue.Options{Retries: queue.NoRetries})
	within(t, patience, "the holder", zombie.entered)
	next := b.park(t, 1)[0]
	done := make(chan struct{})
	go func() {
		defer close(done)
		shutdown(t, s)
	}()
	info := b.awaitState(t, id, asynq.TaskStatePending)
	if info.Retried != 0 {
		t.Errorf("want no retry used, have %+v", info)
	}
	within(t, patience, "the handler's context to end", zombie.ended)
	steadily(t, 300*time.Millisecond, "the lock held and the shutdown waiting", func() bool {
		select {
		case <-done:
			return false
		default:
			return strings.HasPrefix(b.value(t), "siding:")
		}
	})
	zombie.open()
	within(t, patience, "the shutdown", done)
	// The task's lock was released, and the task keeps its position before those who came after it.
	if v := b.value(t); !strings.HasPrefix(v, "siding-reserved:") || !strings.HasSuffix(v, id) {
		t.Errorf("lock: want it reserved for the one that was requeued, have %q", v)
	}
	if have := b.state(next); have != asynq.TaskStateRetry {
		t.Errorf("the next: want it to wait on, have %v", have)
	}
	b.serve(t, queue.ServerConfig{}, st.run)
	b.awaitGone(t, id, next)
	st.wantOrder(0, 0, 1)
}

// Wait waits for calls that are under way, not for handlers alone.
func TestWaitWaitsForWakes(t *testing.T) {
	t.Parallel()
	b, st := setupStepwise(t), newStage(t)
	calling, late := make(chan struct{}), make(chan struct{})
	p := &plain{onLocks: func(_ context.Context, cmd redis.Cmder, send func() error) error {
		if isWake(cmd) {
			select {
			case <-calling:
			default:
				close(calling)
			}
			<-late
		}
		return send()
	}}
	p.serve(t, b, st)
	holder := st.hold(0)
	first := b.enqueue(t, b.job(0))
	within(t, patience, "the holder", holder.entered)
	id := b.park(t, 1)[0]
	holder.open()
	within(t, patience, "the wake-up", calling)
	b.awaitGone(t, first)
	p.server.Shutdown()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := p.guard.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while a call is under way: want DeadlineExceeded, have %v", err)
	}
	close(late)
	p.stop(t)
	if have := b.state(id); have != asynq.TaskStatePending {
		t.Errorf("want it called, have %v", have)
	}
}

// One of two servers is shut down in the middle: no task is lost, runs twice or uses a retry.
func TestShutdownLosesNothing(t *testing.T) {
	t.Parallel()
	const tasks = 150
	b, st := setup(t), newStage(t)
	ids := make([]string, tasks)
	for n := range ids {
		j := b.job(n)
		if n%3 == 0 {
			j.Res += ":other"
		}
		ids[n] = b.enqueue(t, j, queue.Options{Retries: queue.NoRetries})
	}
	b.serve(t, queue.ServerConfig{Asynq: asynq.Config{Concurrency: 10}}, st.run)
	s := b.serve(t, queue.ServerConfig{Asynq: asynq.Config{Concurrency: 10, ShutdownTimeout: 5 * time.Second}}, st.run)
	st.awaitRuns(tasks / 3)
	shutdown(t, s)
	b.awaitGone(t, ids...)
	have := st.order()
	slices.Sort(have)
	if len(slices.Compact(have)) != tasks || len(st.order()) != tasks {
		t.Errorf("want each of %d tasks run once, have %d runs", tasks, len(st.order()))
	}
	if info := b.stats(t); info.Failed != 0 || info.Processed != tasks {
		t.Errorf("want %d processed, none failed, have %+v", tasks, info)
	}
}

// Shutdown returns at its hard deadline, with a handler that never returns and
// with a Redis that does not answer.
func TestShutdownAtTheHardDeadline(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		gone bool
		want string
	}{
		"handler":    {false, "queue: handlers still hold their locks: context deadline exceeded"},
		"redis gone": {true, "queue: shutdown: tasks are still running: context deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			b, st := setupOn(t, redis.UniversalOptions{Addrs: []string{server.Addr}}), newStage(t)
			logs, j := newLogs(t), &journal{}
			s := b.newServer(t, queue.ServerConfig{Guard: queue.GuardConfig{Lock: lock.Config{TTL: time.Second}, Logger: logs.logger, Observe: j.observe}})
			queue.Handle(s, st.run)
			if err := s.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			holder := st.hold(0)
			b.enqueue(t, b.job(0))
			within(t, patience, "the holder", holder.entered)
			t.Cleanup(func() { // the rest, which a process that ends does not wait for
				server.Resume()
				poll.Eventually(t, "the handler's end", func() bool { return len(j.of(queue.EventReleased, ""))+len(j.of(queue.EventLost, "")) > 0 })
				poll.Eventually(t, "asynq's end", func() bool { return len(logs.lines("message=Exiting")) == 1 })
			})
			if tt.gone {
				server.Pause()
				within(t, patience, "the holder to give up", holder.ended)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			start := time.Now()
			if err := s.Shutdown(ctx); err == nil || err.Error() != tt.want {
				t.Errorf("want %q, have %v", tt.want, err)
			}
			if took := time.Since(start); took > promised(4*time.Second) {
				t.Errorf("want it to return after 2 s, have %v", took)
			}
			if err := s.Shutdown(t.Context()); err != nil {
				t.Errorf("a second one: want nil, have %v", err)
			}
		})
	}
}

// A task with a priority that a shutdown requeues keeps its position.
func TestShutdownWithAPriority(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st := newStage(t)
		s := b.serve(t, queue.ServerConfig{}, st.run)
		zombie := st.hold(0)
		id := b.enqueue(t, b.job(0), queue.Options{Priority: 3})
		within(t, patience, "the holder", zombie.entered)
		next := b.enqueueWaiter(t, 1, 1, queue.Options{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			shutdown(t, s)
		}()
		b.awaitState(t, id, asynq.TaskStatePending)
		within(t, patience, "the handler's context to end", zombie.ended)
		zombie.open()
		within(t, patience, "the shutdown", done)
		if v := b.value(t); !strings.HasSuffix(v, id) {
			t.Errorf("want the lock reserved for the one that was requeued, have %q", v)
		}
		b.serve(t, queue.ServerConfig{}, st.run)
		b.awaitGone(t, id, next)
		st.wantOrder(0, 0, 1)
	})
}

// A task that a shutdown requeues is first in the wait queue. Its own position does not keep it from its
// lock, whatever its policy.
func TestShutdownWithAPolicy(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]queue.Policy{
		"reject": {OnBusy: queue.OnBusyReject}, "wait": {OnBusy: queue.OnBusyWait, Wait: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBothPaths(t, func(t *testing.T, b *bundle) {
				t.Helper()
				st, j := newStage(t), &journal{}
				s := b.serve(t, queue.ServerConfig{}, st.run)
				zombie := st.hold(0)
				id := b.enqueue(t, b.job(0), queue.Options{Policy: &p})
				within(t, patience, "the holder", zombie.entered)
				done := make(chan struct{})
				go func() {
					defer close(done)
					shutdown(t, s)
				}()
				b.awaitState(t, id, asynq.TaskStatePending)
				within(t, patience, "the handler's context to end", zombie.ended)
				zombie.open()
				within(t, patience, "the shutdown", done)
				b.serve(t, queue.ServerConfig{Guard: queue.GuardConfig{Observe: j.observe}}, st.run)
				begin := time.Now()
				b.awaitEnd(t, id)
				st.wantOrder(0, 0)
				if took := time.Since(begin); took > prompt {
					t.Errorf("want it run at once, have it run after %v", took)
				}
			})
		})
	}
}
