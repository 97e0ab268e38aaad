package queue_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/lock"
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

// A bundle is what a test needs of one Redis, with names that no other test uses.
type bundle struct {
	opts      *redis.UniversalOptions
	rdb       redis.UniversalClient
	client    *queue.Client
	inspector *asynq.Inspector
	queue     string
	resource  string
	locker    *lock.Locker // on the default configuration
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

// onBoth runs a test on one Redis, where a step takes the locks, and on a Cluster, where the attempts do.
func onBoth(t *testing.T, run func(*testing.T, *bundle)) {
	t.Helper()
	for name, setup := range map[string]func(*testing.T) *bundle{"Redis": setup, "Cluster": setupCluster} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, setup(t))
		})
	}
}

// setupOn returns a bundle on a server of the test's own.
func setupOn(t *testing.T, o redis.UniversalOptions) *bundle {
	t.Helper()
	opts := &o
	rdb := queue.Redis(opts)
	t.Cleanup(func() { _ = rdb.Close() })
	locker, err := lock.New(lock.Redis(rdb), longTimeout)
	must(t, err)
	name := strings.ReplaceAll(t.Name(), "/", ".") + "." + uuid.NewString()[:8]
	return &bundle{
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
func newClient(t *testing.T, rdb redis.UniversalClient) *queue.Client {
	t.Helper()
	client, err := queue.NewClient(rdb, queue.ClientConfig{})
	must(t, err)
	return client
}

// job returns the n-th task on the bundle's resource.
func (b *bundle) job(n int) job { return job{Res: b.resource, N: n} }

// enqueue returns the id of a task in the bundle's queue.
func (b *bundle) enqueue(t *testing.T, task queue.Task, opts ...queue.Options) string {
	t.Helper()
	var o queue.Options
	if len(opts) > 0 {
		o = opts[0]
	}
	if o.Queue == "" {
		o.Queue = b.queue
	}
	receipt, err := b.client.Enqueue(t.Context(), task, &o)
	must(t, err)
	return receipt.ID
}

// serve starts a server, by default on the bundle's queue, that runs jobs with fn. The server is
// shut down at the test's cleanup.
func (b *bundle) serve(t *testing.T, cfg queue.ServerConfig, fn func(context.Context, job) error) *queue.Server {
	t.Helper()
	s := b.newServer(t, cfg)
	queue.Handle(s, fn)
	queue.Handle(s, func(context.Context, note) error { return nil })
	start(t, s)
	return s
}

func (b *bundle) newServer(t *testing.T, cfg queue.ServerConfig) *queue.Server {
	t.Helper()
	a := &cfg.Asynq
	if a.Queues == nil {
		a.Queues = map[string]int{b.queue: 1}
	}
	a.DelayedTaskCheckInterval = cmp.Or(a.DelayedTaskCheckInterval, 50*time.Millisecond)
	a.ShutdownTimeout = cmp.Or(a.ShutdownTimeout, 200*time.Millisecond)
	cfg.Lock.HandoffTimeout = cmp.Or(cfg.Lock.HandoffTimeout, longTimeout.HandoffTimeout)
	if cfg.Logger == nil {
		cfg.Logger = newLogs(t).logger
	}
	s, err := queue.NewServer(b.redisOpt(), cfg)
	must(t, err)
	return s
}

// redisOpt returns what makes the connections of asynq, and of servers.
func (b *bundle) redisOpt() asynq.RedisConnOpt { return queue.RedisOpt(*b.opts) }

// shutdown is for cleanups: the test's own context has ended by then.
func shutdown(t *testing.T, s *queue.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Errorf("shutdown: %v", err)
	}
}

// within fails the test unless ch is closed, or has something, before d is over.
func within[T any](t *testing.T, d time.Duration, what string, ch <-chan T) T {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case v := <-ch:
		return v
	case <-timer.C:
		t.Fatalf("want %s within %v", what, d)
		panic("not reached")
	}
}

// steadily fails the test unless ok holds until d is over.
func steadily(t *testing.T, d time.Duration, what string, ok func() bool) {
	t.Helper()
	ticker := time.NewTicker(glance)
	defer ticker.Stop()
	for end := time.Now().Add(d); time.Now().Before(end); <-ticker.C {
		if !ok() {
			t.Fatalf("want %s for %v", what, d)
		}
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

func (b *bundle) awaitState(t *testing.T, id string, want asynq.TaskState) *asynq.TaskInfo {
	t.Helper()
	var info *asynq.TaskInfo
	poll.Eventually(t, "task "+id+" to be "+want.String(), func() bool {
		var err error
		info, err = b.inspector.GetTaskInfo(b.queue, id)
		return err == nil && info.State == want
	})
	return info
}

// awaitGone waits until a task has succeeded, and is therefore deleted.
func (b *bundle) awaitGone(t *testing.T, ids ...string) {
	t.Helper()
	for _, id := range ids {
		poll.Eventually(t, "task "+id+" to succeed", func() bool {
			n, err := b.rdb.Exists(t.Context(), b.taskKey(id)).Result()
			return err == nil && n == 0
		})
	}
}

// wantWaiters compares the tasks that wait for the bundle's resource.
func (b *bundle) wantWaiters(t *testing.T, want ...string) {
	t.Helper()
	if have := b.waiters(t); !slices.Equal(have, want) {
		t.Errorf("line: want %v, have %v", want, have)
	}
}

func (b *bundle) waiters(t *testing.T) []string {
	t.Helper()
	waiters, err := b.rdb.ZRange(t.Context(), b.lineKey(), 0, -1).Result()
	must(t, err)
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
func (b *bundle) value(t *testing.T) string {
	t.Helper()
	v, err := b.rdb.Get(t.Context(), b.lockKey()).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	return v
}

// stats returns the bundle's queue as the inspector sees it.
func (b *bundle) stats(t *testing.T) *asynq.QueueInfo {
	t.Helper()
	info, err := b.inspector.GetQueueInfo(b.queue)
	must(t, err)
	return info
}

// logs keeps what is logged, and shows it when the test has failed.
type logs struct {
	mu     sync.Mutex
	text   bytes.Buffer
	logger *slog.Logger
}

func newLogs(t *testing.T) *logs {
	t.Helper()
	l := &logs{}
	l.logger = slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindDuration {
			t.Errorf("%s: want a number with its unit in the name, as JSON has nanoseconds, have %v", a.Key, a.Value)
		}
		return a
	}}))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log:\n%s", l)
		}
	})
	return l
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
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
