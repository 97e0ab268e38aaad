package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sidingq/siding/internal/redisreply"
	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// A fleet is a Redis with tasks and servers.
type fleet struct {
	t    testing.TB
	addr string
	rdb  *redis.Client
	n    int

	rules taskredis.Rules // of the servers
}

func newFleet(tb testing.TB) *fleet {
	tb.Helper()
	f := &fleet{t: tb, addr: redistest.Start(tb).Addr}
	f.rdb = f.connect()
	return f
}

func (f *fleet) connect() *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: f.addr, ContextTimeoutEnabled: true})
	f.t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// add enqueues a task as a client of ours does.
func (f *fleet) add(queue, resource string, change ...func(*taskredis.Message)) string {
	f.t.Helper()
	f.n++
	id := fmt.Sprintf("task-%04d", f.n)
	m := taskredis.Message{Type: "kind", ID: id, Queue: queue, Retry: 25, Timeout: 60, Payload: []byte(resource)}
	for _, c := range change {
		c(&m)
	}
	ctx := context.Background()
	fields := []any{"msg", m.Encode(), "state", "pending", "pending_since", "1"}
	if resource != "" {
		fields = append(fields, "siding_resource", resource)
	}
	pipe := f.rdb.TxPipeline()
	pipe.HSet(ctx, taskredis.TaskKey(queue, id), fields...)
	pipe.LPush(ctx, taskredis.PendingKey(queue), id)
	pipe.LPush(ctx, taskredis.NotifyKey(queue), 1)
	pipe.SAdd(ctx, "asynq:queues", queue)
	expect.OK(f.t, expect.Err(pipe.Exec(ctx)))
	return id
}

// config returns a server's configuration with defaults as package queue has them.
func (f *fleet) config(handler Handler) Config {
	return Config{
		Redis: f.connect(), Queues: map[string]int{"q": 1}, Concurrency: 8,
		Prefix: "lock:", TTL: 15 * time.Second, RenewEvery: 5 * time.Second, SafetyMargin: time.Second, FenceTTL: 75 * time.Second,
		Handler: handler, ShutdownTimeout: 8 * time.Second, Overrun: time.Minute,
		Crashes: 3, Losses: 10, Logger: slog.New(slog.NewTextHandler(f.t.Output(), nil)),
	}
}

func (f *fleet) start(cfg Config) *Server {
	f.t.Helper()
	s := New(cfg)
	expect.OK(f.t, s.Start(f.t.Context(), taskredis.Rules{}))
	f.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			f.t.Errorf("shutdown: %v", err)
		}
	})
	return s
}

// eventually waits until check returns nil.
func (f *fleet) eventually(check func() error) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	expect.OK(f.t, expect.Until(ctx, check))
}

func TestEngineRefusesToRunBesideTheOldProtocol(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	// The entry of such a server says that it is guarded (7008), and names no protocol.
	e := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "old")
	e = protowire.AppendVarint(protowire.AppendTag(e, 2, protowire.VarintType), 7)
	queue := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "q")
	e = protowire.AppendBytes(protowire.AppendTag(e, 5, protowire.BytesType), queue)
	e = protowire.AppendVarint(protowire.AppendTag(e, 7008, protowire.VarintType), 1)
	ctx := t.Context()
	f.rdb.Set(ctx, "asynq:servers:{old:7:x}", e, time.Minute)
	f.rdb.ZAdd(ctx, "asynq:servers", redis.Z{Score: float64(time.Now().Add(time.Minute).Unix()), Member: "asynq:servers:{old:7:x}"})
	err := New(f.config(nil)).Start(ctx, taskredis.Rules{})
	expect.That(t, err != nil && strings.Contains(err.Error(), "old (pid 7)"), "want the old server named, have %v", err)
	_, ofRedis := errors.AsType[*redisreply.CallError](err)
	expect.That(t, !ofRedis, "want it to be no error of Redis, have %v", err)
}

// Functions of the user that do not return hold up the end of a server no longer than its context allows. The error
// tells whether a task still runs.
func TestShutdownDoesNotWaitForTheUsersFunctions(t *testing.T) {
	t.Parallel()
	block := func(within chan<- string, name string, until <-chan struct{}) {
		select {
		case within <- name:
		default:
		}
		<-until
	}
	for name, set := range map[string]func(cfg *Config, f func()){
		"HealthCheck": func(cfg *Config, f func()) {
			cfg.HealthCheck, cfg.HealthCheckInterval = func(error) { f() }, 10*time.Millisecond
		},
		"GroupAggregator": func(cfg *Config, f func()) {
			cfg.GroupAggregator = asynq.GroupAggregatorFunc(func(string, []*asynq.Task) *asynq.Task { f(); return asynq.NewTask("joined", nil) })
			cfg.GroupGracePeriod = time.Second
		},
		"Settled": func(cfg *Config, f func()) { // which holds up the loop
			cfg.Settled = func(*Task, error, bool) { f() }
		},
		"Handler": func(cfg *Config, f func()) {
			cfg.Handler = func(context.Context, *Task) error { f(); return nil }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			within, until := make(chan string, 1), make(chan struct{})
			cfg := f.config(func(context.Context, *Task) error { return nil })
			set(&cfg, func() { block(within, name, until) })
			s := f.start(cfg)
			defer close(until) // before the fleet ends
			expect.OK(t, expect.Err(asynq.NewClientFromRedisClient(f.rdb).EnqueueContext(t.Context(), asynq.NewTask("kind", nil), asynq.Queue("q"), asynq.Group("g"))))
			f.add("q", "")
			<-within
			ctx, cancel := context.WithTimeout(t.Context(), time.Second) // a task that nothing blocks ends before
			defer cancel()
			began := time.Now()
			err := s.Shutdown(ctx)
			expect.That(t, errors.Is(err, context.DeadlineExceeded) && time.Since(began) <= 6*time.Second, "want the end of the context, have %v after %v", err, time.Since(began))
			running := name == "Handler"
			expect.That(t, errors.Is(err, ErrNotReturned) != running, "a task runs: %t, have %v", running, err)
		})
	}
}
