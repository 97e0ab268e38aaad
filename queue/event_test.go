package queue_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/queue"
)

// An observer learns how long a task waited, for whom, and what ended the wait.
func TestEventsOfWaits(t *testing.T) {
	t.Parallel()
	// enough is how long each task of this test waits at least.
	const enough = 20 * time.Millisecond
	for name, tt := range map[string]struct {
		end  func(context.Context, *bundle, *lock.Lease, string) error // ends the wait of a task
		want queue.Via
	}{
		"by a release": {func(ctx context.Context, _ *bundle, held *lock.Lease, _ string) error {
			return held.Release(ctx)
		}, queue.ViaHandOff},
		"as its holder has gone": {func(ctx context.Context, b *bundle, _ *lock.Lease, _ string) error {
			return b.rdb.Del(ctx, b.lockKey()).Err()
		}, queue.ViaRecovery},
		"as its holder has gone, and an operator runs it": {func(ctx context.Context, b *bundle, _ *lock.Lease, id string) error {
			defer func() { _ = b.inspector.RunTask(b.queue, id) }() // it may run already
			return b.rdb.Del(ctx, b.lockKey()).Err()
		}, queue.ViaRecovery},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _ := setupAlone(t)
			st, j := newStage(t), &journal{}
			held := b.acquire(t, &lock.Options{Holder: "the test, held by itself since 1"})
			b.serve(t, queue.ServerConfig{Observe: j.observe}, st.run)
			id := b.enqueue(t, b.job(1))
			parked := j.await(t, queue.EventParked, id, 1)
			if !errors.Is(parked.Err, lock.ErrBusy) {
				t.Errorf("parked: want ErrBusy, have %v", parked.Err)
			}
			parked.Err = nil
			if want := (queue.Event{
				Kind: queue.EventParked, TaskID: id, TaskKind: "test:job", Queue: b.queue, Resource: b.resource,
				Parked: 1, Holder: parked.Holder,
			}); parked != want || !strings.HasPrefix(parked.Holder, "the test, held by") {
				t.Errorf("parked: want %+v, have %+v", want, parked)
			}
			came := time.Now()
			time.AfterFunc(enough, func() {
				if err := tt.end(t.Context(), b, held, id); err != nil {
					t.Error(err)
				}
			})
			e := j.await(t, queue.EventAcquired, id, 1)
			most := time.Since(came) + patience
			if e.Via != tt.want || e.Waited < enough || e.Waited > most {
				t.Errorf("want %v, and a wait of %v to %v, have %+v", tt.want, enough, most, e)
			}
			if handedOff := e.HandOff > 0; handedOff != (tt.want == queue.ViaHandOff) {
				t.Errorf("hand-off: have %v", e.HandOff)
			}
			if e.Fence <= held.Fence() || e.HandOff > prompt {
				t.Errorf("want a fence above %d, and a hand-off soon, have %+v", held.Fence(), e)
			}
			if r := j.await(t, queue.EventReleased, id, 1); r.Err != nil || r.Held <= 0 || r.Fence != e.Fence {
				t.Errorf("released: have %+v", r)
			}
		})
	}
}

// Somebody who is no task holds the lock on an external store. The task comes by itself. No release has
// ended its wait.
func TestEventOfAWaitForAnExternalStore(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st, j, memory := newStage(t), &journal{}, locktest.NewMemory()
		st.unfenced = true
		release := b.holdBy(t, newLocker(t, newQueueless(memory), lock.Config{}))
		b.serve(t, queue.ServerConfig{Store: newQueueless(memory), Observe: j.observe}, st.run)
		id := b.enqueue(t, b.job(1))
		j.await(t, queue.EventParked, id, 1)
		release()
		if e := j.await(t, queue.EventAcquired, id, 1); e.Via != queue.ViaRecovery || e.HandOff != 0 || e.Waited <= 1 || e.ReleasedBy != "" {
			t.Errorf("want a wait that ended by recovery, and no hand-off, have %+v", e)
		}
		j.awaitBalance(t)
	})
}

// A task that finds its resource free has not waited. Tasks without a resource are observed, too.
func TestEventsWithoutAWait(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		t.Helper()
		j, own := &journal{}, errors.New("own failure")
		server := b.newServer(t, queue.ServerConfig{Observe: j.observe})
		queue.Handle(server, newStage(t).run)
		queue.Handle(server, func(context.Context, note) error { return queue.Permanent(own) })
		start(t, server)
		free := b.enqueue(t, b.job(0))
		if e := j.await(t, queue.EventAcquired, free, 1); e.Waited != 0 || e.Via != "" || e.Holder != "" || e.HandOff != 0 {
			t.Errorf("acquired: want no wait, have %+v", e)
		}
		j.await(t, queue.EventReleased, free, 1)
		failed := b.enqueue(t, note{})
		started, finished := j.await(t, queue.EventStarted, failed, 1), j.await(t, queue.EventFinished, failed, 1)
		if started.TaskKind != "test:note" || started.Queue != b.queue || started.Resource != "" {
			t.Errorf("started: have %+v", started)
		}
		if finished.Held <= 0 || !errors.Is(finished.Err, own) {
			t.Errorf("finished: want a time and the handler's error, have %+v", finished)
		}
		if all := j.of(queue.EventAcquired, failed); len(all) > 0 {
			t.Errorf("a task without a resource: want no lock, have %+v", all)
		}
	})
}

const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// The run that gets the lock learns the trace of the one that released it, whichever process that was.
func TestTraceOfTheReleasingRun(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st, j := newStage(t), &journal{}
		run := func(ctx context.Context, task job) error {
			if task.N == 1 {
				if err := queue.SetTraceparent(ctx, trace); err != nil {
					t.Error(err)
				}
			}
			return st.run(ctx, task)
		}
		for range 2 {
			b.serve(t, queue.ServerConfig{Asynq: asynq.Config{Concurrency: 1}, Observe: j.observe}, run)
		}
		first, second := st.hold(1), st.hold(2)
		b.enqueue(t, b.job(1))
		within(t, patience, "the first", first.entered)
		two, three := b.enqueue(t, b.job(2)), b.enqueue(t, b.job(3))
		j.await(t, queue.EventParked, two, 1)
		j.await(t, queue.EventParked, three, 1)
		first.open()
		if e := j.await(t, queue.EventAcquired, two, 1); e.ReleasedBy != trace {
			t.Errorf("after a traced run: have %+v", e)
		}
		within(t, patience, "the second", second.entered)
		second.open()
		if e := j.await(t, queue.EventAcquired, three, 1); e.ReleasedBy != "" {
			t.Errorf("after a run without a trace: have %+v", e)
		}
	})
}

// What is no traceparent is refused. Outside of a guarded task there is nobody to tell.
func TestSetTraceparent(t *testing.T) {
	t.Parallel()
	if err := queue.SetTraceparent(t.Context(), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", "00-x", "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01:"} {
		if err := queue.SetTraceparent(t.Context(), bad); err == nil || !strings.Contains(err.Error(), "traceparent") {
			t.Errorf("%q: have %v", bad, err)
		}
	}
}

// Middleware runs while the lock is held, the first one outermost.
func TestServerUse(t *testing.T) {
	t.Parallel()
	b, ran := setup(t), make(chan string, 4)
	wrap := func(name string) asynq.MiddlewareFunc {
		return func(next asynq.Handler) asynq.Handler {
			return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
				ran <- name + " " + strconv.FormatBool(lock.Fence(ctx, b.resource) > 0)
				return next.ProcessTask(ctx, task)
			})
		}
	}
	server := b.newServer(t, queue.ServerConfig{})
	queue.Handle(server, func(context.Context, job) error { return nil })
	server.Use(wrap("outer"))
	server.Use(wrap("inner"))
	start(t, server)
	b.awaitGone(t, b.enqueue(t, b.job(1)))
	for _, want := range []string{"outer true", "inner true"} {
		if have := within(t, patience, "a middleware", ran); have != want {
			t.Errorf("want %s, have %s", want, have)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("Use of a running server: want a panic")
		}
	}()
	server.Use(wrap("late"))
}

// Each event that begins the run of a handler is followed by one that ends it, however the handler
// ends. So an observer can count the tasks that run.
func TestEachBeginHasOneEnd(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		t.Helper()
		ends := []func() error{
			func() error { return nil },
			func() error { return queue.Permanent(errors.New("own failure")) },
			func() error { return fmt.Errorf("a second lock: %w", lock.ErrBusy) },
			func() error { return fmt.Errorf("a write: %w", lock.ErrStale) }, // so its lock was lost
			func() error { return queue.Unavailable(errors.New("no ink")) },
			func() error { panic("out of stock") },
			func() error { runtime.Goexit(); return nil },
		}
		j := &journal{}
		server := b.newServer(t, queue.ServerConfig{Observe: j.observe})
		queue.Handle(server, func(_ context.Context, t job) error { return ends[t.N]() })
		queue.Handle(server, func(_ context.Context, t note) error { return ends[t.N]() })
		must(t, server.Start(t.Context()))
		var ids []string
		for n := range ends {
			opts := queue.Options{Timeout: time.Second}
			ids = append(ids, b.enqueue(t, job{Res: fmt.Sprintf("%s-%d", b.resource, n), N: n}, opts), b.enqueue(t, note{n}, opts))
		}
		count := func(id string, kinds ...queue.EventKind) (n int) {
			for _, kind := range kinds {
				n += len(j.of(kind, id))
			}
			return n
		}
		for _, id := range ids {
			poll.Eventually(t, "the end of a handler", func() bool { return count(id, queue.EventReleased, queue.EventLost, queue.EventFinished) > 0 })
		}
		shutdown(t, server)
		for i, id := range ids {
			guarded, lost := count(id, queue.EventAcquired), count(id, queue.EventLost)
			if have := count(id, queue.EventReleased, queue.EventLost); have != guarded {
				t.Errorf("guarded, way %d: want %d ends, have %d", i/2, guarded, have)
			}
			for _, e := range j.of(queue.EventReleased, id) {
				if failed := i >= 2; failed != (e.Err != nil) {
					t.Errorf("guarded, way %d: want its error: %t, have %v", i/2, failed, e.Err)
				}
			}
			if wantLost := i == 2*3; lost > 0 != wantLost {
				t.Errorf("guarded, way %d: want a lost lock: %t, have %d", i/2, wantLost, lost)
			}
			if started, have := count(id, queue.EventStarted), count(id, queue.EventFinished); have != started || started+guarded == 0 {
				t.Errorf("way %d: want %d ends, have %d", i/2, started, have)
			}
		}
	})
}
