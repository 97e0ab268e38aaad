//go:build wiring

// These tests are written before what they test: remove the tag when queue.NewServer runs on the engine.

package asynqhandler_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/queue/asynqhandler"
)

// patience is how long a test waits for what should come at once.
const patience = 20 * time.Second

// serverConfig is a program's configuration of asynq, with the one line that Siding wants changed.
func serverConfig(t *testing.T, queueName string, slots int, h asynq.HandlerFunc) queue.ServerConfig {
	t.Helper()
	mux := asynq.NewServeMux()
	mux.HandleFunc("wiring:", h)
	handler, err := asynqhandler.New(mux)
	if err != nil {
		t.Fatal(err)
	}
	return queue.ServerConfig{
		Asynq:   asynq.Config{Concurrency: slots, Queues: map[string]int{queueName: 1}, LogLevel: asynq.FatalLevel},
		Handler: handler,
	}
}

// sharedOpt is how public programs give one client to all of asynq's types: Convoy's type Redis, the
// redisConnOptWrapper of go-arcade, the RedisPool of cic-custodial.
type sharedOpt struct{ client redis.UniversalClient }

func (o *sharedOpt) MakeRedisClient() any { return o.client }

// freshOpt makes a client for each that asks, as do types that add a hook or fetch credentials.
type freshOpt struct {
	addr string
	mu   *sync.Mutex
	made *[]*redis.Client
}

func (o freshOpt) MakeRedisClient() any {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := redis.NewClient(&redis.Options{Addr: o.addr})
	*o.made = append(*o.made, c)
	return c
}

// A work is what the handlers of a test run. Its tasks wait in their handlers if hold is set.
type work struct {
	began, hold chan string
}

func newWork(held bool) *work {
	w := &work{began: make(chan string, 1000)}
	if held {
		w.hold = make(chan string)
	}
	return w
}

func (w *work) run(ctx context.Context, task *asynq.Task) error {
	w.began <- string(task.Payload())
	if w.hold == nil {
		return nil
	}
	select {
	case <-w.hold:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// begins waits until a task has begun.
func (w *work) begins(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	select {
	case name := <-w.began:
		return name
	case <-ctx.Done():
		t.Fatal("no task has begun")
		return ""
	}
}

func enqueue(t *testing.T, c *asynq.Client, queueName string, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := c.EnqueueContext(t.Context(), asynq.NewTask("wiring:task", []byte(name)), asynq.Queue(queueName), asynq.Retention(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
}

func start(t *testing.T, s *queue.Server, err error) *queue.Server {
	t.Helper()
	if err == nil {
		err = s.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func shutdown(t *testing.T, s *queue.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}

// awaitError returns what comes from a call that should return now.
func awaitError(t *testing.T, from <-chan error, what string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	select {
	case err := <-from:
		return err
	case <-ctx.Done():
		t.Fatalf("%s has not returned", what)
		return nil
	}
}

// S1: a producer, an inspector and two servers on the one client of a RedisConnOpt. A server is suspended and
// another takes its place, as in Convoy, while the rest goes on. Nobody closes the client, or changes it.
func TestOneClientForAll(t *testing.T) {
	t.Parallel()
	shared := redis.NewClient(&redis.Options{Addr: redistest.Shared(t).Addr})
	defer func() { _ = shared.Close() }()
	opt := &sharedOpt{shared}
	producer, inspector := asynq.NewClient(opt), asynq.NewInspector(opt)
	first, second := t.Name()+".first", t.Name()+".second"
	work1, work2 := newWork(true), newWork(false)
	newServer := func(queueName string, w *work) *queue.Server {
		s, err := queue.NewServer(opt, serverConfig(t, queueName, 4, w.run))
		return start(t, s, err)
	}
	server1, server2 := newServer(first, work1), newServer(second, work2)
	enqueue(t, producer, first, "a")
	enqueue(t, producer, second, "b")
	work1.begins(t)
	work2.begins(t)

	// Convoy's Suspend: Stop, wait for the handlers, Shutdown.
	server1.Stop()
	work1.hold <- "go on"
	shutdown(t, server1)
	poll.Eventually(t, "the task of the suspended server to be settled", func() bool {
		info, err := inspector.GetQueueInfo(first)
		return err == nil && info.Completed == 1
	})
	enqueue(t, producer, first, "c")
	enqueue(t, producer, second, "d")
	if have := work2.begins(t); have != "d" {
		t.Errorf("want the other server to go on with d, have %s", have)
	}
	resumed := newServer(first, work1)
	if have := work1.begins(t); have != "c" {
		t.Errorf("want the new server to run c, have %s", have)
	}
	work1.hold <- "go on"
	shutdown(t, resumed)
	shutdown(t, server2)
	if err := shared.Ping(t.Context()).Err(); err != nil {
		t.Errorf("want the client as open as it was: %v", err)
	}
}

// S1: a client that was made for the server is closed with it, whoever made it.
func TestFreshClientsAreClosed(t *testing.T) {
	t.Parallel()
	var made []*redis.Client
	opt := freshOpt{redistest.Shared(t).Addr, new(sync.Mutex), &made}
	w := newWork(false)
	s, err := queue.NewServer(opt, serverConfig(t, t.Name(), 2, w.run))
	shutdown(t, start(t, s, err))
	if len(made) == 0 {
		t.Error("want a client made")
	}
	for i, c := range made {
		if err := c.Ping(t.Context()).Err(); !errors.Is(err, redis.ErrClosed) {
			t.Errorf("client %d: want it closed, have %v", i, err)
		}
	}
}

// S2: a server, a producer and a scheduler on a client that the program has. Such a client has go-redis's
// defaults: calls do not end with their contexts.
func TestExistingClient(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Shared(t).Addr, PoolSize: 4})
	defer func() { _ = rdb.Close() }()
	producer := asynq.NewClientFromRedisClient(rdb)
	w := newWork(false)
	s, err := queue.NewServerFromRedisClient(rdb, serverConfig(t, t.Name(), 20, w.run))
	start(t, s, err)
	const tasks = 200 // more than slots, and slots more than connections
	for i := range tasks {
		enqueue(t, producer, t.Name(), fmt.Sprint(i))
	}
	for range tasks {
		w.begins(t)
	}
	shutdown(t, s)
	if err := rdb.Ping(t.Context()).Err(); err != nil {
		t.Errorf("want the client as open as it was: %v", err)
	}
}

// S2: an idle server waits on a connection. A pool without another one would stand still.
func TestPoolIsTooSmall(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", PoolSize: 1})
	defer func() { _ = rdb.Close() }()
	_, err := queue.NewServerFromRedisClient(rdb, serverConfig(t, t.Name(), 1, newWork(false).run))
	if want := "queue: redis: pool size: want 4 or more, have 1"; err == nil || err.Error() != want {
		t.Errorf("want %s, have %v", want, err)
	}
}

// S2: whoever closes the client too early hears so, and soon.
func TestClientIsClosedTooEarly(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Shared(t).Addr})
	s, err := queue.NewServerFromRedisClient(rdb, serverConfig(t, t.Name(), 1, newWork(false).run))
	start(t, s, err)
	if err := rdb.Close(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Shutdown(t.Context()) }()
	if err := awaitError(t, done, "Shutdown"); !errors.Is(err, redis.ErrClosed) {
		t.Errorf("want %v, have %v", redis.ErrClosed, err)
	}
}

// S2: calls of such a client may have no timeout. A Redis that stands still must not hold up Shutdown.
func TestShutdownEndsWithItsContext(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: r.Addr, ReadTimeout: -1, WriteTimeout: -1, MaxRetries: -1})
	w := newWork(true)
	s, err := queue.NewServerFromRedisClient(rdb, serverConfig(t, t.Name(), 1, w.run))
	start(t, s, err)
	enqueue(t, asynq.NewClientFromRedisClient(rdb), t.Name(), "a")
	w.begins(t)
	r.Pause()
	defer r.Resume()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.Shutdown(ctx) }()
	if err := awaitError(t, done, "Shutdown"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("want the end of the context, have %v", err)
	}
}

// S3: a stopped server begins nothing and goes on with what it has. It leaves notifications to others,
// and the dashboard shows its state.
func TestStopThenShutdown(t *testing.T) {
	t.Parallel()
	rdb := redistest.Shared(t).Client(t)
	producer, inspector := asynq.NewClientFromRedisClient(rdb), asynq.NewInspectorFromRedisClient(rdb)
	held, others := newWork(true), newWork(false)
	s, err := queue.NewServerFromRedisClient(rdb, serverConfig(t, t.Name(), 10, held.run))
	start(t, s, err)
	enqueue(t, producer, t.Name(), "a")
	held.begins(t)
	s.Stop()
	s.Stop() // the second changes nothing
	const n = 20
	for i := range n {
		enqueue(t, producer, t.Name(), fmt.Sprint(i))
	}
	poll.Eventually(t, "the dashboard to show the state", func() bool {
		servers, err := inspector.Servers()
		for _, have := range servers {
			if _, ours := have.Queues[t.Name()]; ours && have.Status == "stopped" && len(have.ActiveWorkers) == 1 {
				return err == nil
			}
		}
		return false
	})
	if info, err := inspector.GetQueueInfo(t.Name()); err != nil || info.Pending != n || info.Active != 1 {
		t.Errorf("want %d pending and 1 active, have %+v: %v", n, info, err)
	}
	if err := s.Start(t.Context()); err == nil {
		t.Error("want a stopped server not to start")
	}

	next, err := queue.NewServerFromRedisClient(rdb, serverConfig(t, t.Name(), 10, others.run))
	start(t, next, err)
	for range n {
		others.begins(t)
	}
	for i := range n { // each alone, so that each needs a notification, which the stopped server must not take
		enqueue(t, producer, t.Name(), fmt.Sprint("later ", i))
		others.begins(t)
	}
	held.hold <- "go on"
	shutdown(t, s)
	shutdown(t, next)
	if info, err := inspector.GetQueueInfo(t.Name()); err != nil || info.Completed != 2*n+1 {
		t.Errorf("want all completed, have %+v: %v", info, err)
	}
}

// S3: as in asynq, Stop before Start does nothing.
func TestStopBeforeStart(t *testing.T) {
	t.Parallel()
	rdb := redistest.Shared(t).Client(t)
	w := newWork(false)
	s, err := queue.NewServerFromRedisClient(rdb, serverConfig(t, t.Name(), 1, w.run))
	if err == nil {
		s.Stop()
	}
	start(t, s, err)
	enqueue(t, asynq.NewClientFromRedisClient(rdb), t.Name(), "a")
	w.begins(t)
	shutdown(t, s)
}

// S3: a handler may stop its server, so that its task is the last. asynq's users asked for that twice.
func TestStopByAHandler(t *testing.T) {
	t.Parallel()
	rdb := redistest.Shared(t).Client(t)
	enqueue(t, asynq.NewClientFromRedisClient(rdb), t.Name(), "a", "b", "c")
	var s *queue.Server
	ran := make(chan string, 3)
	s, err := queue.NewServerFromRedisClient(rdb, serverConfig(t, t.Name(), 1, func(_ context.Context, task *asynq.Task) error {
		s.Stop()
		ran <- string(task.Payload())
		return nil
	}))
	start(t, s, err)
	inspector := asynq.NewInspectorFromRedisClient(rdb)
	poll.Eventually(t, "the first task to be settled", func() bool {
		info, err := inspector.GetQueueInfo(t.Name())
		return err == nil && info.Completed == 1
	})
	shutdown(t, s)
	if info, err := inspector.GetQueueInfo(t.Name()); err != nil || info.Pending != 2 || info.Active != 0 || len(ran) != 1 {
		t.Errorf("want one to have run and two to be pending, have %d run, %+v: %v", len(ran), info, err)
	}
}

// S5: Run returns when another goroutine has shut the server down, and not before the handlers have ended, as
// the process may end then.
func TestRunReturnsAfterShutdown(t *testing.T) {
	t.Parallel()
	rdb := redistest.Shared(t).Client(t)
	w := newWork(true)
	s, err := queue.NewServerFromRedisClient(rdb, serverConfig(t, t.Name(), 1, w.run))
	if err != nil {
		t.Fatal(err)
	}
	ran, shut := make(chan error, 1), make(chan error, 1)
	go func() { ran <- s.Run(context.Background()) }() //nolint:usetesting // it does not end
	enqueue(t, asynq.NewClientFromRedisClient(rdb), t.Name(), "a")
	w.begins(t)
	go func() { shut <- s.Shutdown(t.Context()) }()
	poll.Eventually(t, "the server to take no more", func() bool { return errors.Is(s.Start(t.Context()), asynq.ErrServerClosed) })
	select {
	case err := <-ran:
		t.Errorf("want Run to wait for the handler, have it return %v", err)
	default:
	}
	w.hold <- "go on"
	if err := awaitError(t, shut, "Shutdown"); err != nil {
		t.Error(err)
	}
	if err := awaitError(t, ran, "Run"); err != nil {
		t.Errorf("want nil, as nothing has gone wrong, have %v", err)
	}
	if err := s.Run(t.Context()); !errors.Is(err, asynq.ErrServerClosed) {
		t.Errorf("want %v of a second Run, have %v", asynq.ErrServerClosed, err)
	}
	shutdown(t, s) // the second changes nothing
}

// S5: each of several calls of Shutdown returns only when tasks have ended, or with its own context's error. So
// it does not matter whether Run or another goroutine came first.
func TestShutdownByTwo(t *testing.T) {
	t.Parallel()
	rdb := redistest.Shared(t).Client(t)
	w := newWork(true)
	s, err := queue.NewServerFromRedisClient(rdb, serverConfig(t, t.Name(), 1, w.run))
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	ran, impatient, patient := make(chan error, 1), make(chan error, 1), make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	enqueue(t, asynq.NewClientFromRedisClient(rdb), t.Name(), "a")
	w.begins(t)
	end()
	soon, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	go func() { impatient <- s.Shutdown(soon) }()
	go func() { patient <- s.Shutdown(t.Context()) }()
	if err := awaitError(t, impatient, "the call with little time"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("want the end of its context, have %v", err)
	}
	w.hold <- "go on"
	for what, from := range map[string]<-chan error{"Run": ran, "Shutdown": patient} {
		if err := awaitError(t, from, what); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
