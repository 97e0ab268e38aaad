package queue_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// The texts of the errors of a server that cannot be started once more.
const (
	startedBefore = "queue: the server was started before"
	startsNow     = "queue: another call starts the server just now"
	shutBefore    = "queue: the server was shut down before: make another one"
)

// A Start that failed, as the server has no handler or its context has ended, may be called again.
func TestStartAgainAfterAnError(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.newServer(queue.ServerConfig{})
	id := b.enqueue(b.job(0))
	const want = "queue: start: want a handler, have none: call Handle, or set Handler of ServerConfig"
	expect.Equal(t, "start", fmt.Sprint(s.Start(t.Context())), want)
	queue.Handle(s, b.run)
	expect.Is(t, "start", s.Start(ended(t)), context.Canceled)
	start(t, s)
	b.awaitGone(id)
}

// Run serves until its context ends, then waits for what runs. A second call of Run or Start leaves the server alone.
func TestRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.newJobServer(queue.ServerConfig{Asynq: asynq.Config{ShutdownTimeout: math.MaxInt64}})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	b.awaitGone(b.enqueue(b.job(0)))
	for name, again := range map[string]func(context.Context) error{"run": s.Run, "start": s.Start} {
		expect.Equal(t, name, fmt.Sprint(again(t.Context())), startedBefore)
	}
	holder, id := b.begin(1)
	stop()
	steadily(t, 50*time.Millisecond, "it to wait for the task", func() bool { return len(done) == 0 })
	holder.open()
	expect.OK(t, within(t, patience, "the end", done))
	b.awaitGone(id)
	for name, again := range map[string]func(context.Context) error{"run": s.Run, "start": s.Start, "ready": s.Ready} {
		if err := again(t.Context()); fmt.Sprint(err) != shutBefore || !errors.Is(err, asynq.ErrServerClosed) {
			t.Errorf("%s after the end: want %q, have %v", name, shutBefore, err)
		}
	}
	shutdown(t, s) // does nothing
	b.wantOrder(0, 1)
}

// A middleware may ask the server for its kinds when it is made. One that cannot be made leaves the server as it was.
func TestMiddlewareThatAsksTheServer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.newJobServer(queue.ServerConfig{})
	broken := true
	s.Use(func(next asynq.Handler) asynq.Handler {
		expect.Equal(t, "kinds", fmt.Sprint(s.Kinds()), "[test:job]")
		if broken {
			broken = false
			panic("boom")
		}
		return next
	})
	expect.Equal(t, "panic", panicOf(func() { _ = s.Start(t.Context()) }), "boom")
	start(t, s)
	b.awaitGone(b.enqueue(b.job(0)))
}

// Run returns when somebody else shuts the server down.
func TestRunEndsWithShutdown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.newJobServer(queue.ServerConfig{})
	ran := make(chan error, 1)
	go func() { ran <- s.Run(t.Context()) }()
	b.awaitGone(b.enqueue(b.job(0)))
	shutdown(t, s)
	expect.OK(t, within(t, patience, "the end of Run", ran))
}

// A Run whose context ends while it asks Redis, or that another call shuts down then, has nothing to drain, and nothing to say.
func TestRunThatEndsAsItStarts(t *testing.T) {
	t.Parallel()
	eachOf(t, onOne, map[string]bool{"its context ends": true, "it is shut down": false}, func(b *bundle, ends bool) {
		s := b.newJobServer(queue.ServerConfig{})
		ctx, stop := context.WithCancel(b.Context())
		defer stop()
		atProbe(s, func(ctx context.Context) error {
			if !ends {
				return s.Shutdown(ctx)
			}
			stop()
			return ctx.Err()
		})
		expect.OK(b, s.Run(ctx))
		expect.Equal(b, "start after that", fmt.Sprint(s.Start(b.Context())), shutBefore)
	})
}

// A kind has its resource from one place.
func TestStartWithTwoResourcesOfAKind(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.newJobServer(queue.ServerConfig{Resources: resources()})
	const want = "queue: resources: test:job: want none, as the task of its handler by Handle is Guarded and names its resource"
	expect.Equal(t, "start", fmt.Sprint(s.Start(t.Context())), want)
	shutdown(t, s)
}

// A server that another call has started meanwhile outlives a Run whose Redis did not answer. Redis
// does not answer the first call until the second one was refused.
func TestRunThatFailsWhileAnotherStarts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.newServer(queue.ServerConfig{})
	asked, answer := make(chan struct{}), make(chan struct{})
	var once sync.Once
	atProbe(s, func(context.Context) error {
		once.Do(func() { close(asked) })
		<-answer
		return errors.New("down")
	})
	first := make(chan error, 1)
	go func() { first <- s.Run(t.Context()) }()
	within(t, patience, "the first call", asked)
	for name, again := range map[string]func(context.Context) error{"run": s.Run, "start": s.Start} {
		expect.Equal(t, name, fmt.Sprint(again(t.Context())), startsNow)
	}
	close(answer)
	if err := within(t, patience, "the first call's end", first); err == nil || !strings.Contains(err.Error(), "down") {
		t.Errorf("want Redis' error, have %v", err)
	}
	for name, after := range map[string]func(context.Context) error{"start": s.Start, "ready": s.Ready} {
		expect.Equal(t, name+" after that", fmt.Sprint(after(t.Context())), shutBefore)
	}
}

// While Redis does not answer a Start, other calls wait for no longer than they are to: a Shutdown, too, which ends the Start.
func TestCallsWhileAStartHangs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.newJobServer(queue.ServerConfig{})
	asked, answer := make(chan struct{}), make(chan struct{})
	var once sync.Once
	queue.ClientOf(s).AddHook(tap(func(_ context.Context, cmd redis.Cmder, send func() error) error {
		if cmd.Name() == "time" { // what a server asks first that it may start
			once.Do(func() { close(asked) })
			<-answer
		}
		return send()
	}))
	started := make(chan error, 1)
	go func() { started <- s.Start(t.Context()) }()
	within(t, patience, "the call", asked)
	others := make(chan error, 1)
	go func() {
		s.Stop()
		expect.Equal(t, "kinds", fmt.Sprint(s.Kinds()), "[test:job]")
		expect.OK(t, s.Ready(t.Context()))
		others <- s.Shutdown(t.Context())
	}()
	expect.OK(t, within(t, patience, "the shutdown", others))
	close(answer)
	expect.Equal(t, "start", fmt.Sprint(within(t, patience, "the end of Start", started)), shutBefore)
}

// atProbe calls a function when a server asks Redis, in Start, whether tasks could be taken. An error of the function is the answer.
func atProbe(s *queue.Server, f func(context.Context) error) {
	queue.ClientOf(s).AddHook(tap(func(ctx context.Context, cmd redis.Cmder, send func() error) error {
		if args := cmd.Args(); len(args) > 4 && strings.HasSuffix(fmt.Sprint(args[4]), ":probe") {
			if err := f(ctx); err != nil {
				return err
			}
		}
		return send()
	}))
}

// What is missing is named by the first call that can name it. Nothing panics, and nothing is done.
func TestMissingArguments(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var none context.Context
	s := b.newServer(queue.ServerConfig{})
	s.Use(func(next asynq.Handler) asynq.Handler { return next }, nil)
	for name, call := range map[string]func() error{
		"queue: ctx: want a context, have nil: run":      func() error { return s.Run(none) },
		"queue: ctx: want a context, have nil: start":    func() error { return s.Start(none) },
		"queue: ctx: want a context, have nil: shutdown": func() error { return s.Shutdown(none) },
		"queue: ctx: want a context, have nil: ready":    func() error { return s.Ready(none) },
		"queue: ctx: want a context, have nil: enqueue":  func() error { return expect.Err(b.client.Enqueue(none, b.job(0), nil)) },
		"queue: ctx: want a context, have nil: batch": func() error {
			results, err := b.client.EnqueueBatch(none, []queue.Job{{Task: b.job(0)}})
			expect.That(t, len(results) == 1 && errors.Is(results[0].Err, err), "batch: want the error of the call for its job, have %+v", results)
			return err
		},
		"queue: ctx: want a context, have nil: check":                              func() error { return expect.Err(queue.CheckRedis(none, b.rdb)) },
		"queue: ctx: want a context, have nil: revoke":                             func() error { return expect.Err(queue.Revoke(none, b.rdb, b.revocation())) },
		"queue: redis: want a client, such as one made by Redis, have none: check": func() error { return expect.Err(queue.CheckRedis(t.Context(), nil)) },
		"queue: use: middleware 2: want a function, have nil: start":               func() error { return s.Start(t.Context()) },
	} {
		want := name[:strings.LastIndex(name, ": ")]
		expect.Equal(t, name, fmt.Sprint(call()), want)
	}
	shutdown(t, s)
}

// A server that was never started closes its Locker, too. Whoever waits by it gets an error.
func TestShutdownClosesTheLocker(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.newServer(queue.ServerConfig{})
	held := b.acquire(nil)
	t.Cleanup(func() { _ = held.Release(context.Background()) })
	waited := make(chan error, 1)
	go func() { waited <- s.Locker().Do(t.Context(), b.resource, &lock.Options{Wait: lock.Forever}, nothing) }()
	expect.Eventually(t, "the wait", func() bool { return b.rdb.ZCard(t.Context(), "{"+b.lockKey()+"}:queue").Val() == 1 })
	expect.OK(t, s.Shutdown(ended(t)))
	expect.Is(t, "the wait", within(t, patience, "the end of the wait", waited), lock.ErrClosed)
}

// A server that was stopped takes no more tasks. Those that run go on, and Shutdown waits for them.
func TestStop(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.newServer(queue.ServerConfig{Asynq: asynq.Config{ShutdownTimeout: patience}})
	s.Stop() // before a Start it does nothing
	expect.OK(t, s.Ready(t.Context()))
	queue.Handle(s, b.run)
	expect.OK(t, s.Start(t.Context()))
	holder := b.occupy()
	waiting := b.park(1)
	s.Stop()
	s.Stop() // nor does it a second time
	expect.Equal(t, "ready", fmt.Sprint(s.Ready(t.Context())), "queue: no tasks are taken: the server was stopped")
	late := b.enqueue(job{Res: b.resource + ".other", N: 2})
	steadily(t, 1500*time.Millisecond, "no task run", func() bool { return len(b.order()) == 1 })
	// A step that was under way may have taken it, and then it has gone back to its place in line.
	state := b.state(late)
	expect.That(t, state == asynq.TaskStatePending || state == asynq.TaskStateRetry, "want a later task to wait, have it %v", state)
	done := make(chan struct{})
	go func() {
		defer close(done)
		shutdown(t, s)
	}()
	steadily(t, 300*time.Millisecond, "Shutdown waiting for the one that runs", func() bool { return !isClosed(done) })
	holder.open()
	within(t, patience, "the shutdown", done)
	s.Stop() // nor after the end
	b.wantOrder(0)
	b.serve(queue.ServerConfig{}, b.run)
	b.awaitGone(append(waiting, late)...)
}

// Whoever observes a server may stop it.
func TestStopByObserve(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var s *queue.Server
	stopped := make(chan struct{})
	s = b.newServer(queue.ServerConfig{Observe: func(ev queue.Event) {
		if ev.Kind == queue.EventReleased {
			s.Stop()
			close(stopped)
		}
	}})
	queue.Handle(s, b.run)
	start(t, s)
	b.awaitGone(b.enqueue(b.job(0)))
	within(t, patience, "the end of Stop", stopped)
	b.enqueue(b.job(1))
	steadily(t, 300*time.Millisecond, "no task run", func() bool { return len(b.order()) == 1 })
}

// Servers on a client of somebody else's share it, and leave it open.
func TestServersShareAClient(t *testing.T) {
	t.Parallel()
	eachOf(t, onBoth, map[string]func(*bundle, queue.ServerConfig) (*queue.Server, error){
		"from a client": func(b *bundle, cfg queue.ServerConfig) (*queue.Server, error) {
			return queue.NewServerFromRedisClient(b.rdb, cfg)
		},
		"from options of a foreign type": func(b *bundle, cfg queue.ServerConfig) (*queue.Server, error) {
			return queue.NewServer(connOf(func() any { return b.rdb }), cfg)
		},
	}, func(b *bundle, newServer func(*bundle, queue.ServerConfig) (*queue.Server, error)) {
		var servers []*queue.Server
		for range 2 {
			s := expect.Value(newServer(b, queue.ServerConfig{Asynq: asynq.Config{Queues: map[string]int{b.queue: 1}}, Logger: newLogs(b).logger}))(b)
			queue.Handle(s, b.run)
			expect.OK(b, s.Start(b.Context()))
			servers = append(servers, s)
		}
		b.awaitGone(b.enqueue(b.job(0)))
		shutdown(b, servers[0])
		b.awaitGone(b.enqueue(b.job(1)))
		shutdown(b, servers[1])
		expect.OK(b, b.rdb.Ping(b.Context()).Err()) // it is open
		b.wantOrder(0, 1)
	})
}
