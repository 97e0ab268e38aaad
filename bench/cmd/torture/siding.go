package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/bench/internal/backend"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// A sidingTask names its key as its resource.
type sidingTask struct {
	ID  int    `json:"id"`
	Key string `json:"key"`
}

func (sidingTask) Kind() string       { return "torture:work" }
func (t sidingTask) Resource() string { return t.Key }

type sidingSystem struct {
	setting

	redis  *redis.Client
	client *queue.Client
}

func openSiding(_ context.Context, s setting) (system, error) {
	rdb := redis.NewClient(&redis.Options{Addr: s.Server, ContextTimeoutEnabled: true})
	client, err := queue.NewClient(rdb, queue.ClientConfig{})
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	return &sidingSystem{s, rdb, client}, nil
}

func (s *sidingSystem) enqueue(ctx context.Context, number int, t task) error {
	_, err := s.client.Enqueue(ctx, sidingTask{number, t.Key}, nil)
	return err
}

func (s *sidingSystem) work(ctx context.Context, slots int, h handler) (func(context.Context) error, error) {
	server, err := queue.NewServer(queue.RedisOpt{Addrs: []string{s.Server}}, queue.ServerConfig{
		Asynq: asynq.Config{Concurrency: slots, ShutdownTimeout: drainTimeout},
		Lock:  lock.Config{TTL: s.ttl()}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	queue.Handle(server, func(ctx context.Context, t sidingTask) error {
		charged, _ := asynq.GetRetryCount(ctx)
		return h(ctx, t.ID, charged, lock.Fence(ctx, t.Key))
	})
	return server.Shutdown, server.Start(ctx)
}

func (s *sidingSystem) left(context.Context) (int, error) { return backend.AsynqLeft(s.redis) }

func (s *sidingSystem) close() error { return s.redis.Close() }
