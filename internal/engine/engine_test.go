package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

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
