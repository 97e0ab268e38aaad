package asynqdiff

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/engine"
	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/queue/asynqhandler"
)

// ours is the engine, with asynq's defaults.
type ours struct{}

func (ours) String() string { return "engine" }

func (ours) start(tb testing.TB, opt asynq.RedisConnOpt, cfg asynq.Config, h asynq.Handler) running {
	tb.Helper()
	rdb, ok := opt.MakeRedisClient().(redis.UniversalClient)
	if !ok {
		tb.Fatal("want a client of Redis")
	}
	handler, err := asynqhandler.New(rdb, h)
	if err != nil {
		tb.Fatal(err)
	}
	var onError func(context.Context, *engine.Task, error)
	if cfg.ErrorHandler != nil {
		if onError, err = asynqhandler.NewErrorHandler(cfg.ErrorHandler); err != nil {
			tb.Fatal(err)
		}
	}
	queues := maps.Clone(cfg.Queues)
	maps.DeleteFunc(queues, func(name string, priority int) bool { return strings.TrimSpace(name) == "" || priority < 1 })
	if len(queues) == 0 {
		queues = map[string]int{"default": 1}
	}
	retryDelay := cfg.RetryDelayFunc
	if retryDelay == nil {
		retryDelay = asynq.DefaultRetryDelayFunc
	}
	shutdownTimeout := cmp.Or(cfg.ShutdownTimeout, 8*time.Second)
	s := engine.New(engine.Config{
		Redis: rdb, Queues: queues, Strict: cfg.StrictPriority, Concurrency: cmp.Or(cfg.Concurrency, 4),
		Prefix: "lock:", TTL: 15 * time.Second, RenewEvery: 5 * time.Second, SafetyMargin: time.Second, FenceTTL: 75 * time.Second,
		Handler: handler, BaseContext: cfg.BaseContext, IsFailure: cfg.IsFailure, RetryDelay: retryDelay,
		OnError:         onError,
		ShutdownTimeout: shutdownTimeout, Overrun: time.Minute, Crashes: 3, Losses: 10,
		HealthCheck: cfg.HealthCheckFunc, HealthCheckInterval: cfg.HealthCheckInterval,
		DelayedTaskCheckInterval: cfg.DelayedTaskCheckInterval, JanitorInterval: cfg.JanitorInterval, JanitorBatchSize: cfg.JanitorBatchSize,
		GroupAggregator: cfg.GroupAggregator, GroupGracePeriod: cfg.GroupGracePeriod, GroupMaxDelay: cfg.GroupMaxDelay, GroupMaxSize: cfg.GroupMaxSize,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err := s.Start(tb.Context(), taskredis.Rules{}); err != nil {
		tb.Fatal(err)
	}
	return &onEngine{s, rdb, shutdownTimeout}
}

type onEngine struct {
	server  *engine.Server
	rdb     redis.UniversalClient
	timeout time.Duration // of a shutdown
}

func (e *onEngine) Stop() { _ = e.server.Stop(context.Background()) }

func (e *onEngine) Shutdown() {
	ctx, cancel := context.WithTimeout(context.Background(), e.timeout+2*time.Second)
	defer cancel()
	_ = e.server.Shutdown(ctx)
	_ = e.rdb.Close()
}
