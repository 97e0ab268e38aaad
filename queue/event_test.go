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

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/queue"
)

// An observer learns how long a task waited, for whom, and what ended the wait.
func TestEventsOfWaits(t *testing.T) {
	t.Parallel()
	// enough is how long each task of this test waits at least.
	const enough = 20 * time.Millisecond
	type row struct {
		end  func(context.Context, *bundle, *lock.Lease, string) error // ends the wait of a task
		want queue.Via
	}
	eachOf(t, onAlone, map[string]row{
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
	}, func(b *bundle, tt row) {
		held := b.acquire(&lock.Options{Holder: "the test, held by itself since 1"})
		b.serve(queue.ServerConfig{Observe: b.observe}, b.run)
		id := b.enqueue(b.job(1))
		parked := b.await(queue.EventParked, id, 1)
		expect.That(b, errors.Is(parked.Err, lock.ErrBusy), "parked: want ErrBusy, have %v", parked.Err)
		parked.Err = nil
		if want := (queue.Event{
			Kind: queue.EventParked, TaskID: id, TaskKind: "test:job", Queue: b.queue, Resource: b.resource,
			Parked: 1, Holder: parked.Holder,
		}); parked != want || !strings.HasPrefix(parked.Holder, "the test, held by") {
			b.Errorf("parked: want %+v, have %+v", want, parked)
		}
		came := time.Now()
		time.AfterFunc(enough, func() {
			if err := tt.end(b.Context(), b, held, id); err != nil {
				b.Error(err)
			}
		})
		e := b.await(queue.EventAcquired, id, 1)
		most := time.Since(came) + patience
		expect.That(b, e.Via == tt.want && e.Waited >= enough && e.Waited <= most,
			"want %v, and a wait of %v to %v, have %+v", tt.want, enough, most, e)
		expect.Equal(b, "a hand-off", e.HandOff > 0, tt.want == queue.ViaHandOff)
		expect.That(b, e.Fence > held.Fence() && e.HandOff <= prompt, "want a fence above %d, and a hand-off soon, have %+v", held.Fence(), e)
		r := b.await(queue.EventReleased, id, 1)
		expect.That(b, r.Err == nil && r.Held > 0 && r.Fence == e.Fence, "released: have %+v", r)
	})
}

// Somebody who is no task holds the lock on an external store. The task comes by itself. No release has
// ended its wait.
func TestEventOfAWaitForAnExternalStore(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bundle) {
		memory := locktest.NewMemory()
		b.unfenced = true
		release := b.holdBy(newLocker(b, newQueueless(memory), lock.Config{}))
		b.serve(queue.ServerConfig{Store: newQueueless(memory), Observe: b.observe}, b.run)
		id := b.enqueue(b.job(1))
		b.await(queue.EventParked, id, 1)
		release()
		e := b.await(queue.EventAcquired, id, 1)
		expect.That(b, e.Via == queue.ViaRecovery && e.HandOff == 0 && e.Waited > 1 && e.ReleasedBy == "",
			"want a wait that ended by recovery, and no hand-off, have %+v", e)
		b.awaitBalance()
	})
}

// A task that finds its resource free has not waited. Tasks without a resource are observed, too.
func TestEventsWithoutAWait(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bundle) {
		own := errors.New("own failure")
		server := b.newJobServer(queue.ServerConfig{Observe: b.observe})
		queue.Handle(server, func(context.Context, note) error { return queue.Permanent(own) })
		start(b, server)
		free := b.enqueue(b.job(0))
		e := b.await(queue.EventAcquired, free, 1)
		expect.That(b, e.Waited == 0 && e.Via == "" && e.Holder == "" && e.HandOff == 0, "acquired: want no wait, have %+v", e)
		b.await(queue.EventReleased, free, 1)
		failed := b.enqueue(note{})
		started, finished := b.await(queue.EventStarted, failed, 1), b.await(queue.EventFinished, failed, 1)
		expect.That(b, started.TaskKind == "test:note" && started.Queue == b.queue && started.Resource == "", "started: have %+v", started)
		expect.That(b, finished.Held > 0 && errors.Is(finished.Err, own), "finished: want a time and the handler's error, have %+v", finished)
		all := b.of(queue.EventAcquired, failed)
		expect.That(b, len(all) == 0, "a task without a resource: want no lock, have %+v", all)
	})
}

const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// The run that gets the lock learns the trace of the one that released it, whichever process that was.
func TestTraceOfTheReleasingRun(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bundle) {
		run := func(ctx context.Context, task job) error {
			if task.N == 1 {
				if err := queue.SetTraceparent(ctx, trace); err != nil {
					b.Error(err)
				}
			}
			return b.run(ctx, task)
		}
		for range 2 {
			b.serve(queue.ServerConfig{Asynq: asynq.Config{Concurrency: 1}, Observe: b.observe}, run)
		}
		first, second := b.hold(1), b.hold(2)
		b.enqueue(b.job(1))
		within(b, patience, "the first", first.entered)
		two, three := b.enqueue(b.job(2)), b.enqueue(b.job(3))
		b.await(queue.EventParked, two, 1)
		b.await(queue.EventParked, three, 1)
		first.open()
		expect.Equal(b, "trace of a traced run", b.await(queue.EventAcquired, two, 1).ReleasedBy, trace)
		within(b, patience, "the second", second.entered)
		second.open()
		expect.Equal(b, "trace of a run without one", b.await(queue.EventAcquired, three, 1).ReleasedBy, "")
	})
}

// What is no traceparent is refused. Outside of a guarded task there is nobody to tell.
func TestSetTraceparent(t *testing.T) {
	t.Parallel()
	expect.OK(t, queue.SetTraceparent(t.Context(), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"))
	for _, bad := range []string{"", "00-x", "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01:"} {
		err := queue.SetTraceparent(t.Context(), bad)
		expect.That(t, err != nil && strings.Contains(err.Error(), "traceparent"), "%q: have %v", bad, err)
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
	server := b.newServer(queue.ServerConfig{})
	queue.Handle(server, func(context.Context, job) error { return nil })
	server.Use(wrap("outer"))
	server.Use(wrap("inner"))
	start(t, server)
	b.awaitGone(b.enqueue(b.job(1)))
	for _, want := range []string{"outer true", "inner true"} {
		expect.Equal(t, "the next", within(t, patience, "a middleware", ran), want)
	}
	defer func() {
		expect.That(t, recover() != nil, "Use of a running server: want a panic")
	}()
	server.Use(wrap("late"))
}

// Each event that begins the run of a handler is followed by one that ends it, however the handler
// ends. So an observer can count the tasks that run.
func TestEachBeginHasOneEnd(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bundle) {
		ends := []func() error{
			func() error { return nil },
			func() error { return queue.Permanent(errors.New("own failure")) },
			func() error { return fmt.Errorf("a second lock: %w", lock.ErrBusy) },
			func() error { return fmt.Errorf("a write: %w", lock.ErrStale) }, // so its lock was lost
			func() error { return queue.Unavailable(errors.New("no ink")) },
			func() error { panic("out of stock") },
			func() error { runtime.Goexit(); return nil },
		}
		server := b.newServer(queue.ServerConfig{Observe: b.observe})
		queue.Handle(server, func(_ context.Context, t job) error { return ends[t.N]() })
		queue.Handle(server, func(_ context.Context, t note) error { return ends[t.N]() })
		expect.OK(b, server.Start(b.Context()))
		var ids []string
		for n := range ends {
			opts := queue.Options{Timeout: time.Second}
			ids = append(ids, b.enqueue(job{Res: fmt.Sprintf("%s-%d", b.resource, n), N: n}, opts), b.enqueue(note{n}, opts))
		}
		count := func(id string, kinds ...queue.EventKind) (n int) {
			for _, kind := range kinds {
				n += len(b.of(kind, id))
			}
			return n
		}
		for _, id := range ids {
			expect.Eventually(b, "the end of a handler", func() bool { return count(id, queue.EventReleased, queue.EventLost, queue.EventFinished) > 0 })
		}
		shutdown(b, server)
		for i, id := range ids {
			guarded, lost := count(id, queue.EventAcquired), count(id, queue.EventLost)
			expect.Equal(b, fmt.Sprintf("guarded, way %d: ends", i/2), count(id, queue.EventReleased, queue.EventLost), guarded)
			for _, e := range b.of(queue.EventReleased, id) {
				expect.Equal(b, fmt.Sprintf("guarded, way %d: %v is an error", i/2, e.Err), e.Err != nil, i >= 2)
			}
			expect.Equal(b, fmt.Sprintf("guarded, way %d: a lost lock", i/2), lost > 0, i == 2*3)
			if started, have := count(id, queue.EventStarted), count(id, queue.EventFinished); have != started || started+guarded == 0 {
				b.Errorf("way %d: want %d ends, have %d", i/2, started, have)
			}
		}
	})
}

// A task that has waited once, and comes again for another reason, has not waited for that: neither if it finds its lock free after a
// retry, nor if it has kept its place since it ran.
func TestEventsOfATaskThatComesAgain(t *testing.T) {
	t.Parallel()
	eachOf(t, onBoth, map[string]error{"failed": errors.New("own failure"), "a second lock was busy": lock.ErrBusy}, func(b *bundle, failure error) {
		b.serve(queue.ServerConfig{
			Asynq: asynq.Config{RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 0 }}, Observe: b.observe,
		}, b.run)
		g := b.occupy()
		b.failOnce(1, failure)
		id := b.enqueueWaiter(1, 1, queue.Options{})
		g.open()
		first, second := b.await(queue.EventAcquired, id, 1), b.await(queue.EventAcquired, id, 2)
		expect.That(b, first.Via != "" && first.Waited > 0, "at first: want a wait, have %+v", first)
		expect.That(b, second.Via == "" && second.Waited == 0, "again: want none, have %+v", second)
	})
}

// A task waits for its retry, not for its resource, although it had to wait for that before. Its Deadline passes meanwhile: a failure
// like others.
func TestDeadlineWhileARetryIsDue(t *testing.T) {
	t.Parallel()
	onOne(t, func(b *bundle) {
		b.serve(queue.ServerConfig{Asynq: asynq.Config{RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Hour }}}, b.run)
		g := b.occupy()
		b.failOnce(1, errors.New("own failure"))
		id := b.enqueueWaiter(1, 1, queue.Options{Retries: 5, Deadline: time.Now().Add(time.Hour)})
		g.open()
		expect.Eventually(b, "its failure", func() bool { return b.info(id).Retried == 1 })
		b.do("HSET", b.taskKey(id), "siding_deadline", 1)
		b.again(id)
		expect.Eventually(b, "another one", func() bool { return b.info(id).Retried == 2 || b.state(id) == asynq.TaskStateArchived })
		info := b.awaitState(id, asynq.TaskStateRetry)
		expect.Equal(b, "its last error", info.LastErr, context.DeadlineExceeded.Error())
		b.wantOrder(0, 1)
	})
}
