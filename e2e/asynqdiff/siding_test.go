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

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/queue"
)

// ours is Siding's server.
type ours struct{}

func (ours) String() string { return "siding" }

func (ours) start(tb testing.TB, opt asynq.RedisConnOpt, cfg asynq.Config, h asynq.Handler) running {
	tb.Helper()
	rdb, ok := opt.MakeRedisClient().(redis.UniversalClient)
	expect.Need(tb, ok, "want a client of Redis")
	cfg.Queues = maps.Clone(cfg.Queues) // asynq leaves out those that Siding refuses
	maps.DeleteFunc(cfg.Queues, func(name string, weight int) bool { return strings.TrimSpace(name) == "" || weight < 1 })
	s := expect.Value(queue.NewServerFromRedisClient(rdb, queue.ServerConfig{Asynq: cfg, Handler: h, Logger: slog.New(slog.DiscardHandler)}))(tb)
	expect.OK(tb, s.Start(tb.Context()))
	return &siding{s, rdb, cmp.Or(cfg.ShutdownTimeout, 8*time.Second)}
}

type siding struct {
	*queue.Server

	rdb     redis.UniversalClient
	timeout time.Duration // of a shutdown
}

func (s *siding) Shutdown() {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout+2*time.Second)
	defer cancel()
	_ = s.Server.Shutdown(ctx)
	_ = s.rdb.Close()
}
