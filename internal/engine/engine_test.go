package engine

import (
	"errors"
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
	n    int // of the tasks that were enqueued

	rules taskredis.Rules // of the servers
}

func newFleet(tb testing.TB) *fleet {
	tb.Helper()
	return on(tb, redistest.Start(tb))
}

func (f *fleet) connect() *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: f.addr, ContextTimeoutEnabled: true})
	f.t.Cleanup(func() { _ = rdb.Close() })
	return rdb
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
	f.within(20*time.Second, check)
}

// A server that does not start does not look like one that runs.
func TestStartThatFailsLeavesNoEntry(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.do("set", "siding:{q}:contended", "tasks of an earlier release") // which are looked for in the retry set
	f.do("set", taskredis.RetryKey("q"), "another type")
	err := New(f.config(nil)).Start(t.Context(), taskredis.Rules{})
	entries := f.rdb.ZCard(t.Context(), "asynq:servers").Val()
	expect.That(t, err != nil && entries == 0, "want an error and no entry, have %v and %d", err, entries)
}

func TestEngineRefusesToRunBesideAnotherProtocol(t *testing.T) {
	t.Parallel()
	f, ctx := newFleet(t), t.Context()
	for name, c := range map[string]struct {
		queue    string
		guarded  uint64
		protocol uint64 // 0 for none, as in the entries of the first one
		refused  bool
	}{
		"old": {"q", 1, 0, true}, "newer": {"q", 1, taskredis.Protocol + 1, true},
		"elsewhere": {"other", 1, 0, false}, "asynq's": {"q", 0, 0, false},
	} {
		e := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), name)
		e = protowire.AppendVarint(protowire.AppendTag(e, 2, protowire.VarintType), 7)
		queue := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), c.queue)
		queue = protowire.AppendVarint(protowire.AppendTag(queue, 2, protowire.VarintType), 1)
		e = protowire.AppendBytes(protowire.AppendTag(e, 5, protowire.BytesType), queue)
		e = protowire.AppendVarint(protowire.AppendTag(e, 7008, protowire.VarintType), c.guarded)
		e = protowire.AppendVarint(protowire.AppendTag(e, 7010, protowire.VarintType), c.protocol)
		f.rdb.Set(ctx, "asynq:servers:{x}", e, time.Minute)
		f.rdb.ZAdd(ctx, "asynq:servers", redis.Z{Score: float64(time.Now().Add(time.Minute).Unix()), Member: "asynq:servers:{x}"})
		s := New(f.config(nil))
		err := s.Start(ctx, taskredis.Rules{})
		if !c.refused {
			expect.Need(t, err == nil, "%s: want a start, have %v", name, err)
			expect.OK(t, s.Shutdown(ctx))
			continue
		}
		expect.That(t, err != nil && strings.Contains(err.Error(), name+" (pid 7)"), "%s: want the server named, have %v", name, err)
		_, ofRedis := errors.AsType[*redisreply.CallError](err)
		expect.That(t, !ofRedis, "want it to be no error of Redis, have %v", err)
	}
}
