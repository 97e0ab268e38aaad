package hook_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/fastpath"
	"github.com/sidingq/siding/internal/hook"
	"github.com/sidingq/siding/internal/redisstore"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// This file runs real asynq servers, one step at a time. A gate on their connection holds asynq's
// own calls until the test wants the next move.

const (
	tooLong = time.Minute
	// fresh is how old the lease of a task may be when it is dequeued. asynq's leases last 30 s.
	fresh = 5 * time.Second
)

var (
	errWaiting = errors.New("waiting for order:7, held by another")
	errOwn     = errors.New("the task's own failure")
)

// A fleet is some workers on a queue of their own.
type fleet struct {
	connect   func() redis.UniversalClient
	rdb       redis.UniversalClient // without any hook
	client    *asynq.Client
	inspector *asynq.Inspector
	queue     string
}

// stores returns what makes a fleet on a real Redis, and on an embedded one.
func stores() map[string]func(*testing.T) *fleet {
	return map[string]func(*testing.T) *fleet{
		"redis": func(t *testing.T) *fleet {
			t.Helper()
			return newFleet(t, redistest.Shared(t).Addr)
		},
		"miniredis": func(t *testing.T) *fleet {
			t.Helper()
			return newFleet(t, miniredis.RunT(t).Addr())
		},
	}
}

// onStores runs a test on each store.
func onStores(t *testing.T, run func(*testing.T, *fleet)) {
	t.Helper()
	for where, store := range stores() {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			run(t, store(t))
		})
	}
}

func newFleet(t *testing.T, addr string) *fleet {
	t.Helper()
	return fleetOn(func() redis.UniversalClient {
		// A call that was slow and is sent again by the client would be two moves.
		rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1, ReadTimeout: tooLong})
		t.Cleanup(func() { _ = rdb.Close() })
		return rdb
	})
}

func fleetOn(connect func() redis.UniversalClient) *fleet {
	rdb := connect()
	return &fleet{
		connect:   connect,
		rdb:       rdb,
		client:    asynq.NewClientFromRedisClient(rdb),
		inspector: asynq.NewInspectorFromRedisClient(rdb),
		queue:     "q-" + uuid.NewString(),
	}
}

// enqueue puts a task into the queue and returns its id.
func (f *fleet) enqueue(t *testing.T, opts ...asynq.Option) string {
	t.Helper()
	return f.enqueueKind(t, "order:audit", opts...)
}

func (f *fleet) enqueueKind(t *testing.T, kind string, opts ...asynq.Option) string {
	t.Helper()
	opts = append([]asynq.Option{asynq.Queue(f.queue)}, opts...)
	info, err := f.client.EnqueueContext(t.Context(), asynq.NewTask(kind, []byte(`{"order":"7"}`)), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return info.ID
}

// worker starts a server under Siding's hook.
func (f *fleet) worker(t *testing.T) *worker {
	t.Helper()
	return f.start(t, hook.NewHook(slog.New(slog.DiscardHandler), func() {}), &gate{})
}

// fetchingWorker starts a server whose attempts may end by a Finish, which prefetches the next
// task. Only the test requeues such a task.
func (f *fleet) fetchingWorker(t *testing.T) *worker {
	t.Helper()
	h := hook.NewHook(slog.New(slog.DiscardHandler), func() {})
	source, args := fastpath.Dequeue(), redisstore.LockArgs("lock:", 15*time.Second, time.Hour, time.Hour)
	h.TakeLocks(hook.Locking{
		Source: source, Args: args, Release: redisstore.ReleaseLua("local wake_waiter\n"), Host: "here",
		Limited: func() string { return "" },
		Unused:  func(g store.Grant) { t.Errorf("want no lock taken with a task, have that of %s", g.Resource) },
		Parked:  func(r hook.Parked) { t.Errorf("want no task parked, have %s", r.ID) },
	})
	h.Prefetch(f.rdb)
	return f.startOn(t, h, &shelf{}, &gate{})
}

// plain starts a server as anybody's.
func (f *fleet) plain(t *testing.T) *worker {
	t.Helper()
	return f.start(t, nil, &gate{})
}

// recoverExpired does what a server does when it starts, and then once a minute. It retries or
// archives, as failed, the tasks of others whose leases have expired.
func (f *fleet) recoverExpired(t *testing.T, hook *hook.Hook) {
	t.Helper()
	w := f.start(t, hook, &gate{recovers: true})
	receive(t, w.gate.recovered, "the recovery")
	w.stop()
}

func (f *fleet) start(t *testing.T, hook *hook.Hook, g *gate) *worker {
	t.Helper()
	return f.startOn(t, hook, nil, g)
}

// startOn starts a server on the hook, if that is not nil, with a fetcher, if that is not nil.
func (f *fleet) startOn(t *testing.T, hook *hook.Hook, fetcher *shelf, g *gate) *worker {
	t.Helper()
	g.closed = make(chan struct{})
	g.dequeue, g.dequeued = make(chan struct{}), make(chan reply, 1)
	g.forward, g.forwarded = make(chan struct{}), make(chan struct{}, 1)
	g.recovered = make(chan struct{}, 1)
	g.acks = make(chan reply, 1000)
	rdb := f.connect()
	rdb.AddHook(g) // the first is the outermost: it sees what asynq sends
	switch {
	case fetcher != nil:
		rdb.AddHook(hook.Server(fetcher))
	case hook != nil:
		rdb.AddHook(hook)
	}
	w := &worker{hook: hook, fetcher: fetcher, queue: f.queue, gate: g, handlers: make(chan *run), over: make(chan struct{})}
	w.server = asynq.NewServerFromRedisClient(rdb, asynq.Config{
		Concurrency:              50,
		Queues:                   map[string]int{f.queue: 1},
		TaskCheckInterval:        time.Millisecond,
		DelayedTaskCheckInterval: time.Millisecond,
		ShutdownTimeout:          time.Millisecond,
		LogLevel:                 asynq.FatalLevel,
		IsFailure:                func(err error) bool { return !errors.Is(err, errWaiting) },
		RetryDelayFunc:           func(int, error, *asynq.Task) time.Duration { return time.Hour },
	})
	if err := w.server.Start(asynq.HandlerFunc(w.handle)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.stop)
	return w
}

// A worker is an asynq.Server that moves when the test says so.
type worker struct {
	hook     *hook.Hook // nil on a plain connection
	fetcher  *shelf     // nil if it prefetches nothing
	queue    string
	server   *asynq.Server
	gate     *gate
	handlers chan *run
	over     chan struct{}
	once     sync.Once
}

// A run is a handler that waits for its result.
type run struct {
	*worker

	id     string
	task   *asynq.Task
	ours   *hook.Attempt // nil on a plain connection
	result chan error    // nil while the handler has not started
}

func (w *worker) handle(ctx context.Context, task *asynq.Task) error {
	a := &run{worker: w, task: task, result: make(chan error)}
	a.id, _ = asynq.GetTaskID(ctx)
	if w.hook != nil {
		a.ours = w.hook.Attempt(w.queue, a.id)
	}
	select {
	case w.handlers <- a:
	case <-w.over:
	}
	select {
	case err := <-a.result:
		return err
	case <-w.over:
		return errors.New("too late")
	}
}

// next takes the next task, nil when there is none to be had.
func (w *worker) next(t *testing.T) *run {
	t.Helper()
	send(t, w.gate.dequeue, struct{}{}, "a dequeue")
	if err := receive(t, w.gate.dequeued, "the dequeued task").err; errors.Is(err, redis.Nil) {
		return nil
	} else if err != nil {
		t.Fatal(err)
	}
	return receive(t, w.handlers, "the handler")
}

// take is next for a task that must be there.
func (w *worker) take(t *testing.T, id string) *run {
	t.Helper()
	a := w.next(t)
	if a == nil {
		t.Fatalf("want task %s, have none", id)
	}
	if a.id != id {
		t.Fatalf("want task %s, have %s", id, a.id)
	}
	return a
}

// end lets the handler return err and waits for asynq's acknowledgement.
func (a *run) end(t *testing.T, err error) error {
	t.Helper()
	send(t, a.result, err, "the handler's end")
	done := receive(t, a.gate.acks, "the acknowledgement")
	if done.id != a.id {
		t.Fatalf("want an acknowledgement of %s, have one of %s", a.id, done.id)
	}
	return done.err
}

// mustEnd is end where no error may come.
func (a *run) mustEnd(t *testing.T, err error) {
	t.Helper()
	if err := a.end(t, err); err != nil {
		t.Fatalf("acknowledge %s: %v", a.id, err)
	}
}

// park parks the task for an hour.
func (a *run) park(t *testing.T, ticket int64) {
	t.Helper()
	a.ours.Park(asynqredis.Park{At: time.Now().Add(time.Hour), Ticket: ticket, Reason: errWaiting.Error()})
	a.mustEnd(t, errWaiting)
}

// started reports whether the attempt's handler has started.
func (a *run) started() bool { return a.result != nil }

// finish ends an attempt whose handler has succeeded, but does not tell asynq yet. send sends the
// Finish. If takes is set, the Finish prefetches the next task. finish returns the next task, if
// there is one, and whether a's attempt is over now.
func (a *run) finish(t *testing.T, takes bool, send func(f *hook.Finish)) (next *run, over bool) {
	t.Helper()
	a.fetcher.take(takes)
	known := a.fetcher.prefetched()
	f := a.ours.Finish()
	if f == nil {
		t.Fatalf("want %s to end by a finish", a.id)
	}
	send(f)
	f.Close()
	if now := a.fetcher.prefetched(); len(now) > len(known) {
		last := now[len(now)-1]
		next = &run{worker: a.worker, id: last.ID, ours: last}
	}
	return next, f.Over()
}

// requeue requeues the task of a, which is prefetched and has not started.
func (a *run) requeue(t *testing.T, rdb redis.Scripter) (moved bool) {
	t.Helper()
	a.fetcher.drop(a.ours)
	moved, err := a.ours.Requeue(t.Context(), rdb)
	must(t, err)
	return moved
}

// runTimers does one round of asynq's forwarder.
func (w *worker) runTimers(t *testing.T) {
	t.Helper()
	send(t, w.gate.forward, struct{}{}, "a round of the forwarder")
	receive(t, w.gate.forwarded, "the end of the round")
}

// stop shuts the server down. The server requeues the tasks that it runs.
func (w *worker) stop() {
	w.once.Do(func() {
		close(w.gate.closed)
		w.server.Shutdown()
		close(w.over)
	})
}

// A gate holds asynq's calls.
type gate struct {
	recovers  bool // expired leases are seen
	closed    chan struct{}
	dequeue   chan struct{}
	dequeued  chan reply
	forward   chan struct{}
	forwarded chan struct{}
	recovered chan struct{}
	acks      chan reply
	granted   bool // a dequeue that asynq has not sent yet; only asynq's processor asks

	mu    sync.Mutex
	round bool // of the forwarder, under way
}

// A reply is what became of a call of asynq.
type reply struct {
	call []any
	id   string // of the task that it acknowledges
	err  error
}

func (g *gate) DialHook(next redis.DialHook) redis.DialHook { return next }

func (g *gate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (g *gate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		keys, argv := takeApart(cmd)
		// asynq sends each script by its name first; by its text only if need be.
		first := cmd.Name() == "evalsha"
		switch {
		case cmd.Name() == "zadd" && suffixes(cmd.Args()[1:2], ":lease"):
			return nil // no heartbeat comes between a test and its expired leases
		case len(keys) == 1 && suffixes(keys, ":lease") && !g.recovers:
			return g.nothing(cmd)
		case len(keys) == 1 && suffixes(keys, ":aggregation_sets"):
			notify(g.recovered) // asynq's last call of a recovery
		case len(keys) == 4 && suffixes(keys, ":pending", ":paused", ":active", ":lease"):
			if first && !g.mayDequeue() {
				return g.nothing(cmd)
			}
			err := next(ctx, cmd)
			if !missing(err) {
				g.dequeued <- reply{call: cmd.Args(), err: err}
			}
			return err
		case len(keys) == 2 && suffixes(keys, ":scheduled", ":pending"):
			if first && !g.beginRound() {
				return g.nothing(cmd)
			}
			argv[0] = time.Now().Unix() // asynq took the time before it was held back
		case len(keys) == 2 && suffixes(keys, ":retry", ":pending"):
			err := next(ctx, cmd)
			g.endRound(cmd)
			return err
		case suffixes(keys, ":active"), len(keys) >= 8 && suffixes(keys[1:], ":active"):
			err := next(ctx, cmd)
			if id, ok := argv[0].(string); ok && !missing(err) {
				g.acks <- reply{cmd.Args(), id, err}
			}
			return err
		}
		return next(ctx, cmd)
	}
}

// mayDequeue waits for leave to dequeue. asynq took the time for the lease of the task before that. If
// that was long ago, asynq has to ask again, as it acknowledges nothing after the end of a lease.
func (g *gate) mayDequeue() bool {
	since := time.Now()
	if !g.granted && !await(g.dequeue, g.closed) {
		return false
	}
	g.granted = time.Since(since) > fresh
	return !g.granted
}

// beginRound waits for leave to begin a round of the forwarder. Within a round it does not wait, as
// the forwarder goes on until nothing is due.
func (g *gate) beginRound() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.round = g.round || await(g.forward, g.closed)
	return g.round
}

// endRound ends the round if cmd, the second half of it, has moved nothing.
func (g *gate) endRound(cmd redis.Cmder) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c, ok := cmd.(*redis.Cmd); ok && c.Val() == int64(0) {
		g.round = false
		notify(g.forwarded)
	}
}

func (g *gate) nothing(cmd redis.Cmder) error {
	cmd.SetErr(redis.Nil)
	return redis.Nil
}

// takeApart takes a script call apart.
func takeApart(cmd redis.Cmder) (keys, argv []any) {
	args := cmd.Args()
	if name := cmd.Name(); name != "evalsha" && name != "eval" {
		return nil, nil
	}
	n, ok := args[2].(int)
	if !ok {
		return nil, nil
	}
	return args[3 : 3+n], args[3+n:]
}

// suffixes reports whether the first of keys end so.
func suffixes(keys []any, ends ...string) bool {
	if len(keys) < len(ends) {
		return false
	}
	for i, end := range ends {
		if key, ok := keys[i].(string); !ok || !strings.HasSuffix(key, end) {
			return false
		}
	}
	return true
}

func missing(err error) bool { return err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") }

func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func await(permit, closed <-chan struct{}) bool {
	select {
	case <-permit:
		return true
	case <-closed:
		return false
	}
}

func send[T any](t *testing.T, c chan<- T, v T, what string) {
	t.Helper()
	timer := time.NewTimer(tooLong)
	defer timer.Stop()
	select {
	case c <- v:
	case <-timer.C:
		t.Fatalf("%s: not wanted within %v", what, tooLong)
	}
}

func receive[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	timer := time.NewTimer(tooLong)
	defer timer.Stop()
	select {
	case v := <-c:
		return v
	case <-timer.C:
		t.Fatalf("%s: not there within %v", what, tooLong)
	}
	panic("unreachable")
}
