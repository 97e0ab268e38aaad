package inspect_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A job is a guarded task: N says which one it is.
type job struct {
	Res string `json:"res"`
	N   int    `json:"n"`
}

func (job) Kind() string       { return "test:job" }
func (j job) Resource() string { return j.Res }

// A note is a task that needs no lock.
type note struct {
	N int `json:"n"`
}

func (note) Kind() string { return "test:note" }

// errBoom is how a job fails.
var errBoom = errors.New("boom")

// unrecovered is for a server that leaves orphans as they are.
var unrecovered = queue.ServerConfig{Recovery: queue.Recovery{Crashes: -1}}

// A bed is a test with a Redis, and names that no other test uses.
type bed struct {
	*testing.T

	opts      redis.UniversalOptions
	rdb       redis.UniversalClient
	client    *queue.Client
	operator  *asynq.Inspector
	inspector *inspect.Inspector
	queue     string
	resource  string
	host      string // of a server that is not there; see alive
	runner    string // the job that running has started last

	mu    sync.Mutex
	gates map[int]chan struct{}
	runs  map[int]int
	inner map[int]func(context.Context) error
}

func setup(t *testing.T) *bed {
	t.Helper()
	return setupOn(t, redis.UniversalOptions{Addrs: []string{redistest.Shared(t).Addr}}, inspect.Config{}, queue.ClientConfig{})
}

// setupAlone returns a bed on a Redis of the test's own.
func setupAlone(t *testing.T) *bed {
	t.Helper()
	return setupOn(t, redis.UniversalOptions{Addrs: []string{redistest.Start(t).Addr}}, inspect.Config{}, queue.ClientConfig{})
}

func setupOn(t *testing.T, opts redis.UniversalOptions, cfg inspect.Config, clientCfg queue.ClientConfig) *bed {
	t.Helper()
	rdb := queue.Redis(&opts)
	t.Cleanup(func() { _ = rdb.Close() })
	client := expect.Value(queue.NewClient(rdb, clientCfg))(t)
	inspector := expect.Value(inspect.New(rdb, cfg))(t)
	name := strings.ReplaceAll(t.Name(), "/", ".") + "." + uuid.NewString()[:8]
	return &bed{
		T: t, opts: opts, rdb: rdb, client: client, operator: asynq.NewInspectorFromRedisClient(rdb), inspector: inspector,
		queue: name, resource: "res:" + name, host: "host-" + uuid.NewString()[:8], gates: make(map[int]chan struct{}), runs: make(map[int]int), inner: make(map[int]func(context.Context) error),
	}
}

// hold makes job n wait in its handler until it is let go, or the test ends.
func (b *bed) hold(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gates[n] = make(chan struct{})
}

// let lets jobs go on that are held.
func (b *bed) let(jobs ...int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range jobs {
		close(b.gates[n])
		delete(b.gates, n)
	}
}

func (b *bed) run(ctx context.Context, n int) error {
	b.mu.Lock()
	gate, inner := b.gates[n], b.inner[n]
	b.runs[n]++
	b.mu.Unlock()
	if inner != nil {
		return inner(ctx)
	}
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
		}
	}
	if n < 0 {
		return errBoom
	}
	return nil
}

func (b *bed) awaitRun(n int) {
	b.Helper()
	expect.Eventually(b.T, "a run", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.runs[n] > 0
	})
}

// serve starts a guarded server, by default on the bed's queue. It is shut down at the test's cleanup.
func (b *bed) serve(configs ...queue.ServerConfig) *queue.Server {
	b.Helper()
	var cfg queue.ServerConfig
	if len(configs) > 0 {
		cfg = configs[0]
	}
	a := &cfg.Asynq
	if a.Queues == nil {
		a.Queues = map[string]int{b.queue: 1}
	}
	a.Concurrency = cmp.Or(a.Concurrency, 10)
	a.DelayedTaskCheckInterval = 50 * time.Millisecond
	a.ShutdownTimeout = 100 * time.Millisecond
	cfg.Lock.HandoffTimeout = cmp.Or(cfg.Lock.HandoffTimeout, 20*time.Second)
	cfg.Logger = slog.New(slog.DiscardHandler)
	s := expect.Value(queue.NewServer(queue.RedisOpt(b.opts), cfg))(b)
	queue.Handle(s, func(ctx context.Context, j job) error { return b.run(ctx, j.N) })
	queue.Handle(s, func(ctx context.Context, j note) error { return b.run(ctx, j.N) })
	queue.HandleBatch(s, 3, func(ctx context.Context, batch []*queue.BatchTask[bulk]) error { return b.run(ctx, batch[0].Task.N) })
	b.must(s.Start(b.Context()))
	b.Cleanup(func() {
		b.let(slices.Collect(maps.Keys(b.gates))...)
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		expect.Is(b, "shutdown", s.Shutdown(ctx), nil)
	})
	return s
}

// enqueue returns the id of a task, by default in the bed's queue.
func (b *bed) enqueue(task queue.Task, opts ...queue.Options) string {
	b.Helper()
	var o queue.Options
	if len(opts) > 0 {
		o = opts[0]
	}
	o.Queue = cmp.Or(o.Queue, b.queue)
	receipt := expect.Value(b.client.Enqueue(b.Context(), task, &o))(b)
	return receipt.ID
}

// job enqueues the n-th job on the bed's resource.
func (b *bed) job(n int, opts ...queue.Options) string {
	b.Helper()
	return b.enqueue(job{b.resource, n}, opts...)
}

// running enqueues a job that runs until it is let go, or the test ends.
func (b *bed) running(n int, opts ...queue.Options) (id string) {
	b.Helper()
	b.hold(n)
	b.runner = b.job(n, opts...)
	b.awaitRun(n)
	return b.runner
}

// runningNote is the like of [bed.running] without a resource.
func (b *bed) runningNote() (id string) {
	b.Helper()
	b.hold(7)
	id = b.enqueue(note{7})
	b.awaitRun(7)
	return id
}

// waiting enqueues so many jobs behind a running one, and returns once all of them wait.
func (b *bed) waiting(first, n int) (ids []string) {
	b.Helper()
	before := b.waiters()
	for i := range n {
		ids = append(ids, b.job(first+i))
		expect.Eventually(b.T, "a waiter", func() bool { return b.waiters() == before+i+1 })
	}
	return ids
}

// unguarded starts a server that takes no locks on the bed's queue. It takes one task at a time, which enters
// its handler and stays there until the test ends.
func (b *bed) unguarded() (entered <-chan struct{}) {
	b.Helper()
	server := asynq.NewServerFromRedisClient(b.rdb, asynq.Config{
		Concurrency: 1, Queues: map[string]int{b.queue: 1}, LogLevel: asynq.FatalLevel, ShutdownTimeout: time.Millisecond,
	})
	enter, leave := make(chan struct{}, 10), make(chan struct{})
	b.must(server.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		enter <- struct{}{}
		<-leave
		return nil
	})))
	b.Cleanup(server.Shutdown)
	b.Cleanup(func() { close(leave) })
	return enter
}

// waiters is how many wait for the bed's lock.
func (b *bed) waiters() int {
	b.Helper()
	l, _ := b.show(1, 0)
	return l.Waiting
}

// ready enqueues so many jobs that could have their lock, and whose server has no free slot. It returns once they could have
// been served for some time.
func (b *bed) ready(n int) (ids []string) {
	b.Helper()
	other := b.queue + ".other"
	b.serve(queue.ServerConfig{Asynq: asynq.Config{Queues: map[string]int{other: 1}}})
	b.hold(0)
	b.enqueue(job{b.resource, 0}, queue.Options{Queue: other})
	b.awaitRun(0)
	b.serve(queue.ServerConfig{Asynq: asynq.Config{Concurrency: 1}})
	ids = b.waiting(1, n)
	b.runningNote()
	b.let(0)
	expect.Eventually(b.T, "a lock that nobody takes", func() bool {
		l, _ := b.show(1, 0)
		return l.Unserved > 0
	})
	return ids
}

// holder holds the bed's lock as a service does.
func (b *bed) holder() (release func()) {
	b.Helper()
	return b.holdIn(lock.Redis(b.rdb))
}

// holdIn holds the bed's resource in a store until the test ends, or it is released.
func (b *bed) holdIn(store lock.Store) (release func()) {
	b.Helper()
	locker := expect.Value(lock.New(store, lock.Config{HandoffTimeout: 20 * time.Second}))(b)
	b.Cleanup(locker.Close)
	lease := expect.Value(locker.Acquire(b.Context(), b.resource, nil))(b)
	release = sync.OnceFunc(func() { _ = lease.Release(context.WithoutCancel(b.Context())) })
	b.Cleanup(release)
	return release
}

func (b *bed) why(id string) inspect.Explanation {
	b.Helper()
	e := expect.Value(b.inspector.Why(b.Context(), "", id))(b)
	return e
}

// awaitWhy waits until a task is in a state.
func (b *bed) awaitWhy(id string, want inspect.State) inspect.Explanation {
	b.Helper()
	var e inspect.Explanation
	expect.Eventually(b.T, "task to be "+string(want), func() bool {
		var err error
		e, err = b.inspector.Why(b.Context(), "", id)
		return err == nil && e.State == want
	})
	return e
}

// awaitServers waits until so many servers of the bed's queue have said that they live.
func (b *bed) awaitServers(n int) {
	b.Helper()
	expect.Eventually(b.T, "servers", func() bool {
		all := get(b, b.inspector.Servers)
		return len(slices.DeleteFunc(all, func(s inspect.Server) bool { return !slices.Contains(s.Queues, b.queue) })) == n
	})
}

func (b *bed) lockKey() string          { return "lock:" + b.resource }
func (b *bed) taskKey(id string) string { return b.key("t:" + id) }
func (b *bed) key(name string) string   { return "asynq:{" + b.queue + "}:" + name }
func (b *bed) pause()                   { b.Helper(); b.must(b.operator.PauseQueue(b.queue)) }
func (b *bed) do(a ...any)              { b.Helper(); b.must(b.rdb.Do(b.Context(), a...).Err()) }

// get returns the answer to a question.
func get[T any](b *bed, ask func(context.Context) (T, error)) T {
	b.Helper()
	answer := expect.Value(ask(b.Context()))(b)
	return answer
}

// show shows the bed's lock.
func (b *bed) show(from, count int) (inspect.Lock, []inspect.Waiter) {
	b.Helper()
	l, waiters, err := b.inspector.Show(b.Context(), b.resource, from, count)
	b.must(err)
	return l, waiters
}

func (b *bed) scan() []inspect.Lock {
	b.Helper()
	return get(b, func(ctx context.Context) ([]inspect.Lock, error) { return b.inspector.Scan(ctx, func(int) {}) })
}

func (b *bed) must(err error) {
	b.Helper()
	expect.OK(b.T, err)
}

// silence makes a task's lease look as if it had ended, until the test ends.
func (b *bed) silence(id string) {
	b.Helper()
	once := func() error {
		at := float64(time.Now().Add(-time.Second).Unix())
		return b.rdb.ZAddXX(b.Context(), b.key("lease"), redis.Z{Score: at, Member: id}).Err()
	}
	b.must(once())
	done := make(chan struct{})
	go func() { // the worker renews it
		defer close(done)
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for once() == nil {
			<-ticker.C
		}
	}()
	b.Cleanup(func() { <-done })
}

// alive has a guarded server of the bed's queue on the bed's host, as process 1.
func (b *bed) alive() {
	b.Helper()
	server := &taskredis.ServerInfo{Host: b.host, PID: 1, ID: "id", Queues: map[string]int{b.queue: 1}}
	b.must(taskredis.WriteServer(b.Context(), b.rdb, server, nil, time.Minute))
	b.Cleanup(func() { b.must(taskredis.ClearServer(context.WithoutCancel(b.Context()), b.rdb, server)) })
}

// worker has the one server of the bed's queue say that it has run a task for a minute.
func (b *bed) worker(id string) {
	b.Helper()
	b.awaitServers(1)
	all := get(b, b.inspector.Servers)
	at := slices.IndexFunc(all, func(s inspect.Server) bool { return slices.Contains(s.Queues, b.queue) })
	started := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(time.Now().Add(-time.Minute).Unix()))
	entry := protowire.AppendString(protowire.AppendTag(nil, 7, protowire.BytesType), b.queue)
	entry = protowire.AppendBytes(protowire.AppendTag(entry, 8, protowire.BytesType), started)
	b.do("hset", fmt.Sprintf("asynq:workers:{%s:%d:%s}", all[at].Host, all[at].PID, all[at].ID), id, entry)
}

// wantNoToken fails the test if what was found has the value of the bed's lock.
func (b *bed) wantNoToken(found any) {
	b.Helper()
	text := expect.Value(json.Marshal(found))(b)
	for _, key := range []string{b.lockKey(), "wait:" + b.lockKey()} {
		value, err := b.rdb.Get(b.Context(), key).Result()
		expect.That(b, err != nil || !bytes.Contains(text, []byte(value)), "want no token, have %q in %s", value, text)
	}
}

// us is a time in us.
func us(at time.Time) string { return strconv.FormatInt(at.UnixMicro(), 10) }
