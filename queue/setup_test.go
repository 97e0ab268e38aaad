package queue_test

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/sidingq/siding/internal/embedded"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/proc"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/queue"
)

const (
	// patience bounds every wait. Only a test that fails anyway waits for its end.
	patience = 30 * time.Second
	// glance is how often a condition is looked at.
	glance = 3 * time.Millisecond
	// prompt is how soon a task runs whose lock is free, on a machine that does much else.
	prompt = 14 * time.Second
)

// shortTimes is for tests that need short times, but must lose no lease because the machine stood
// still for a moment. longTimeout has a hand-off timeout that is longer than any wait of a test.
var (
	shortTimes  = lock.Config{TTL: 6 * time.Second, RenewEvery: 500 * time.Millisecond}
	longTimeout = lock.Config{HandoffTimeout: 20 * time.Second}
)

// A job is the task of these tests: N says which one it is.
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

// A bundle is what a test needs of one Redis, with names that no other test uses, a handler and an observer.
type bundle struct {
	*testing.T
	*stage
	*journal

	opts      *redis.UniversalOptions
	rdb       redis.UniversalClient
	client    *queue.Client
	inspector *asynq.Inspector
	queue     string
	resource  string
	locker    *lock.Locker      // on the default configuration
	server    *redistest.Server // of the test's own, see [setupAlone]
}

// setup returns a bundle on the server that all tests share.
func setup(t *testing.T) *bundle {
	t.Helper()
	return setupOn(t, redis.UniversalOptions{Addrs: []string{redistest.Shared(t).Addr}})
}

// setupCluster returns a bundle on a Cluster of one node of the test's own.
func setupCluster(t *testing.T) *bundle {
	t.Helper()
	cluster := redistest.StartCluster(t, 1)
	return setupOn(t, redis.UniversalOptions{Addrs: cluster.Addrs, IsClusterMode: true})
}

// on runs a test on each of some kinds of Redis.
func on(t *testing.T, setups map[string]func(*testing.T) *bundle, run func(*bundle)) {
	t.Helper()
	for name, setup := range setups {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(setup(t))
		})
	}
}

// onBoth runs a test on one Redis, where a step takes the locks, and on a Cluster, where the attempts do.
func onBoth(t *testing.T, run func(*bundle)) {
	t.Helper()
	on(t, map[string]func(*testing.T) *bundle{"Redis": setup, "Cluster": setupCluster}, run)
}

// everywhere runs a test on both, and on the embedded Redis.
func everywhere(t *testing.T, run func(*bundle)) {
	t.Helper()
	on(t, map[string]func(*testing.T) *bundle{"Redis": setup, "Cluster": setupCluster, "embedded": func(t *testing.T) *bundle {
		t.Helper()
		server := expect.Value(embedded.Start(embedded.AnyPort))(t)
		t.Cleanup(server.Close)
		return setupOn(t, redis.UniversalOptions{Addrs: []string{server.Addr()}})
	}}, run)
}

// onOne runs a test on one Redis.
func onOne(t *testing.T, run func(*bundle)) {
	t.Helper()
	run(setup(t))
}

// onAlone runs a test on a Redis of its own.
func onAlone(t *testing.T, run func(*bundle)) {
	t.Helper()
	run(setupAlone(t))
}

// eachOf runs a test of each case, on one Redis, on one of its own, on both or everywhere.
func eachOf[C any](t *testing.T, on func(*testing.T, func(*bundle)), cases map[string]C, run func(*bundle, C)) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			on(t, func(b *bundle) { run(b, c) })
		})
	}
}

// onEachStore runs a test on each kind of store; store is nil where that is Redis.
func onEachStore(t *testing.T, run func(b *bundle, store lock.Store)) {
	t.Helper()
	onBoth(t, func(b *bundle) { run(b, nil) })
	t.Run("an external store", func(t *testing.T) {
		t.Parallel()
		run(setup(t), newQueueless(locktest.NewMemory()))
	})
}

// setupOn returns a bundle on a server of the test's own.
func setupOn(t *testing.T, o redis.UniversalOptions) *bundle {
	t.Helper()
	opts, patient := &o, o
	patient.ReadTimeout = redistest.Patience
	rdb := queue.Redis(&patient)
	t.Cleanup(func() { _ = rdb.Close() })
	locker := expect.Value(lock.New(lock.Redis(rdb), longTimeout))(t)
	name := strings.ReplaceAll(t.Name(), "/", ".") + "." + uuid.NewString()[:8]
	return &bundle{
		T: t, stage: newStage(t), journal: &journal{},
		opts:      opts,
		rdb:       rdb,
		client:    newClient(t, rdb),
		inspector: asynq.NewInspectorFromRedisClient(rdb),
		queue:     name,
		resource:  "res:" + name,
		locker:    locker,
	}
}

// newClient returns a client without shards.
func newClient(tb testing.TB, rdb redis.UniversalClient) *queue.Client {
	tb.Helper()
	client := expect.Value(queue.NewClient(rdb, queue.ClientConfig{}))(tb)
	return client
}

// job returns the n-th task on the bundle's resource.
func (b *bundle) job(n int) job { return job{Res: b.resource, N: n} }

// enqueue returns the id of a task in the bundle's queue.
func (b *bundle) enqueue(task queue.Task, opts ...queue.Options) string {
	b.Helper()
	var o queue.Options
	if len(opts) > 0 {
		o = opts[0]
	}
	if o.Queue == "" {
		o.Queue = b.queue
	}
	receipt := expect.Value(b.client.Enqueue(b.Context(), task, &o))(b)
	return receipt.ID
}

// serve starts a server, by default on the bundle's queue, that runs jobs with fn. The server is
// shut down at the test's cleanup.
func (b *bundle) serve(cfg queue.ServerConfig, fn func(context.Context, job) error) *queue.Server {
	b.Helper()
	s := b.newServer(cfg)
	queue.Handle(s, fn)
	queue.Handle(s, func(context.Context, note) error { return nil })
	start(b, s)
	return s
}

// serveWithLocker is serve for jobs that take locks by the server's Locker.
func (b *bundle) serveWithLocker(cfg queue.ServerConfig, fn func(context.Context, *lock.Locker, job) error) {
	b.Helper()
	s := b.newServer(cfg)
	queue.Handle(s, func(ctx context.Context, j job) error { return fn(ctx, s.Locker(), j) })
	start(b, s)
}

func (b *bundle) newServer(cfg queue.ServerConfig) *queue.Server {
	b.Helper()
	a := &cfg.Asynq
	if a.Queues == nil {
		a.Queues = map[string]int{b.queue: 1}
	}
	a.DelayedTaskCheckInterval = cmp.Or(a.DelayedTaskCheckInterval, 50*time.Millisecond)
	a.ShutdownTimeout = cmp.Or(a.ShutdownTimeout, 200*time.Millisecond)
	cfg.Lock.HandoffTimeout = cmp.Or(cfg.Lock.HandoffTimeout, longTimeout.HandoffTimeout)
	if cfg.Logger == nil {
		cfg.Logger = newLogs(b).logger
	}
	s := expect.Value(queue.NewServer(b.redisOpt(), cfg))(b)
	return s
}

// newJobServer returns a server of jobs, which the test starts.
func (b *bundle) newJobServer(cfg queue.ServerConfig) *queue.Server {
	b.Helper()
	s := b.newServer(cfg)
	queue.Handle(s, b.run)
	return s
}

// redisOpt returns what makes the connections of asynq, and of servers.
func (b *bundle) redisOpt() asynq.RedisConnOpt { return queue.RedisOpt(*b.opts) }

// shutdown is for cleanups: the test's own context has ended by then.
func shutdown(tb testing.TB, s *queue.Server) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		tb.Errorf("shutdown: %v", err)
	}
}

// within fails the test unless ch is closed, or has something, before d is over.
func within[T any](tb testing.TB, d time.Duration, what string, ch <-chan T) T {
	tb.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case v := <-ch:
		return v
	case <-timer.C:
		tb.Fatalf("want %s within %v", what, d)
		panic("not reached")
	}
}

// steadily fails the test unless ok holds until d is over.
func steadily(tb testing.TB, d time.Duration, what string, ok func() bool) {
	tb.Helper()
	ticker := time.NewTicker(glance)
	defer ticker.Stop()
	for end := time.Now().Add(d); time.Now().Before(end); <-ticker.C {
		expect.Need(tb, ok(), "want %s for %v", what, d)
	}
}

// state returns where asynq's inspector sees a task, 0 when nowhere.
func (b *bundle) state(id string) asynq.TaskState {
	info, err := b.inspector.GetTaskInfo(b.queue, id)
	if err != nil {
		return 0
	}
	return info.State
}

func (b *bundle) awaitState(id string, want asynq.TaskState) *asynq.TaskInfo {
	b.Helper()
	var info *asynq.TaskInfo
	expect.Eventually(b, "task "+id+" to be "+want.String(), func() bool {
		var err error
		info, err = b.inspector.GetTaskInfo(b.queue, id)
		return err == nil && info.State == want
	})
	return info
}

// awaitGone waits until a task has succeeded, and is therefore deleted.
func (b *bundle) awaitGone(ids ...string) {
	b.Helper()
	for _, id := range ids {
		expect.Eventually(b, "task "+id+" to succeed", func() bool {
			n, err := b.rdb.Exists(b.Context(), b.taskKey(id)).Result()
			return err == nil && n == 0
		})
	}
}

// wantWaiters compares the tasks that wait for the bundle's resource.
func (b *bundle) wantWaiters(want ...string) {
	b.Helper()
	have := b.waiters()
	expect.That(b, slices.Equal(have, want), "line: want %v, have %v", want, have)
}

func (b *bundle) waiters() []string {
	b.Helper()
	waiters := expect.Value(b.rdb.ZRange(b.Context(), b.lineKey(), 0, -1).Result())(b)
	return waiters
}

func (b *bundle) isCluster() bool {
	_, cluster := b.rdb.(*redis.ClusterClient)
	return cluster
}

// placeKey is the key of the lock for which tasks wait.
func (b *bundle) placeKey() string {
	if b.isCluster() {
		return "siding:{" + b.queue + "}:wait:" + b.lockKey()
	}
	return b.lockKey()
}

func (b *bundle) lineKey() string          { return "siding:{" + b.queue + "}:line:" + b.placeKey() }
func (b *bundle) lockKey() string          { return "lock:" + b.resource }
func (b *bundle) taskKey(id string) string { return b.key("t:" + id) }
func (b *bundle) key(name string) string   { return "asynq:{" + b.queue + "}:" + name }

// value returns the value of the lock's key, "" when it is free.
func (b *bundle) value() string {
	b.Helper()
	v, err := b.rdb.Get(b.Context(), b.lockKey()).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		b.Fatal(err)
	}
	return v
}

// stats returns the bundle's queue as the inspector sees it.
func (b *bundle) stats() *asynq.QueueInfo {
	b.Helper()
	info := expect.Value(b.inspector.GetQueueInfo(b.queue))(b)
	return info
}

// wantCounts compares how many runs of tasks have ended, and how many of them failed, when no task is left.
func (b *bundle) wantCounts(processed, failed int) {
	b.Helper()
	info := b.stats()
	expect.That(b, info.Processed == processed && info.Failed == failed && info.Size == 0,
		"want %d processed, %d failed, none left, have %+v", processed, failed, info)
}

// logs keeps what is logged, and shows it when the test has failed.
type logs struct {
	proc.Output

	logger *slog.Logger
}

func newLogs(tb testing.TB) *logs {
	tb.Helper()
	l := &logs{}
	l.logger = slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		expect.That(tb, a.Value.Kind() != slog.KindDuration,
			"%s: want a number with its unit in the name, as JSON has nanoseconds, have %v", a.Key, a.Value)
		return a
	}}))
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("log:\n%s", l)
		}
	})
	return l
}

// lines returns the lines that hold part, of at least the given level.
func (l *logs) lines(part string, levels ...slog.Level) []string {
	var found []string
	for line := range strings.Lines(l.String()) {
		if !strings.Contains(line, part) {
			continue
		}
		if len(levels) == 0 || slices.ContainsFunc(levels, func(lv slog.Level) bool { return strings.Contains(line, "level="+lv.String()) }) {
			found = append(found, line)
		}
	}
	return found
}

func TestMain(m *testing.M) {
	// The pool of a client whose server was down looks every second whether the server is back.
	// Only then does the pool see that it was closed.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// holdElsewhere returns with job 0, in a server and queue of its own, holding the
// bundle's resource.
func (b *bundle) holdElsewhere(cfg lock.Config) *gate {
	b.Helper()
	elsewhere := b.queue + ".elsewhere"
	b.serve(queue.ServerConfig{Asynq: asynq.Config{Queues: map[string]int{elsewhere: 1}}, Lock: cfg}, b.run)
	g, _ := b.begin(0, queue.Options{Queue: elsewhere})
	return g
}

// park enqueues jobs one after the other, each of which must be parked.
func (b *bundle) park(jobs ...int) []string {
	b.Helper()
	ids := make([]string, len(jobs))
	for i, n := range jobs {
		ids[i] = b.enqueue(b.job(n))
		b.awaitState(ids[i], asynq.TaskStateRetry)
	}
	return ids
}

// setupAlone returns a bundle on a server of the test's own, whose figures are of it alone.
func setupAlone(t *testing.T) *bundle { t.Helper(); return setupAloneWith(t) }

func setupAloneWith(t *testing.T, args ...string) *bundle {
	t.Helper()
	server := redistest.Start(t, args...)
	b := setupOn(t, redis.UniversalOptions{Addrs: []string{server.Addr}})
	b.server = server
	return b
}

func (b *bundle) enqueueTask(task *asynq.Task, opts ...asynq.Option) string {
	b.Helper()
	client := asynq.NewClientFromRedisClient(b.rdb)
	info := expect.Value(client.EnqueueContext(b.Context(), task, append(opts, asynq.Queue(b.queue))...))(b)
	return info.ID
}

// lockOf returns what is at the key of a resource's lock, "" for nothing.
func (b *bundle) lockOf(resource string) string {
	b.Helper()
	return b.rdb.Get(b.Context(), "lock:"+resource).Val()
}

// soonFree wants a lock released, long before its TTL.
func (b *bundle) soonFree(resource string) {
	b.Helper()
	start := time.Now()
	expect.Eventually(b, "a free lock", func() bool { return b.lockOf(resource) == "" })
	wantSoon(b, start, "want the lock released, have it free after %v")
}

// waitLockKey is the key of the lock for which the bundle's tasks wait if theirs is on an external store.
func (b *bundle) waitLockKey() string { return "wait:" + b.lockKey() }

// again has a task that waits come now, as an operator does.
func (b *bundle) again(id string) {
	b.Helper()
	expect.OK(b, b.inspector.RunTask(b.queue, id))
}

// wantError compares the beginning of an error; "" means none.
func wantError(tb testing.TB, what, want string, err error) {
	tb.Helper()
	expect.That(tb, (err == nil) == (want == "") && (err == nil || strings.HasPrefix(err.Error(), want)),
		"%s:\nwant %s\nhave %v", what, want, err)
}

// start starts a server for the time of a test.
func start(tb testing.TB, s *queue.Server) {
	tb.Helper()
	expect.OK(tb, s.Start(tb.Context()))
	tb.Cleanup(func() { shutdown(tb, s) })
}

// isClosed reports whether ch is closed.
func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// wantSoon wants what has happened by now to have taken no longer than prompt.
func wantSoon(tb testing.TB, start time.Time, want string) {
	tb.Helper()
	if took := time.Since(start); took > prompt {
		tb.Errorf("%s, have %v", want, took)
	}
}

// begin returns with job n in its handler, where it stays until the gate opens.
func (b *bundle) begin(n int, opts ...queue.Options) (g *gate, id string) {
	b.Helper()
	g = b.hold(n)
	id = b.enqueue(b.job(n), opts...)
	within(b, patience, "the handler", g.entered)
	return g, id
}

// enqueueJobs enqueues the jobs from one number to another, that one too, in their order.
func (b *bundle) enqueueJobs(from, to int, opts ...queue.Options) (ids []string) {
	b.Helper()
	for n := from; n <= to; n++ {
		ids = append(ids, b.enqueue(b.job(n), opts...))
	}
	return ids
}

// info returns a task of the bundle's queue as asynq's inspector sees it.
func (b *bundle) info(id string) *asynq.TaskInfo {
	b.Helper()
	info := expect.Value(b.inspector.GetTaskInfo(b.queue, id))(b)
	return info
}

type connOf func() any

func (f connOf) MakeRedisClient() any { return f() }

// once waits for the line that holds part, and wants no other.
func (l *logs) once(tb testing.TB, part string, levels ...slog.Level) string {
	tb.Helper()
	expect.Eventually(tb, "a line in the log with "+part, func() bool { return len(l.lines(part, levels...)) > 0 })
	found := l.lines(part, levels...)
	expect.That(tb, len(found) == 1, "want one line in the log with %s, have %q", part, found)
	return found[0]
}
