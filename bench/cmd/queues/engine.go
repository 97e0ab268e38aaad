package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/bench/internal/backend"
	"github.com/sidingq/siding/bench/internal/redisstat"
	"github.com/sidingq/siding/bench/internal/trace"
	"github.com/sidingq/siding/bench/internal/workload"
	"github.com/sidingq/siding/internal/engine"
	"github.com/sidingq/siding/internal/taskredis"
)

// engineContenders are the second engine, without package queue around it.
func engineContenders() []contender {
	modules := []string{"github.com/sidingq/siding"}
	return []contender{
		{name: "engine", modules: modules, config: "the loop that is to replace what is under queue.Server", run: inProcess(openEngine(true), 1)},
		{name: "engine-unguarded", modules: modules, config: "the same; tasks without a resource", unsafe: true, run: inProcess(openEngine(false), 1)},
	}
}

// An engineSystem is a client and a server of the engine.
type engineSystem struct {
	redis, server *redis.Client
	client        *taskredis.Enqueuer
	engine        *engine.Server
	guarded       bool
	started       bool
}

func openEngine(guarded bool) opener {
	return func(_ context.Context, c course, rec *trace.Recorder, sent *redisstat.Sent) (system, error) {
		connect := func() *redis.Client {
			return redis.NewClient(&redis.Options{Addr: c.redis, Dialer: sent.Dial, ContextTimeoutEnabled: true})
		}
		s := &engineSystem{redis: connect(), server: connect(), guarded: guarded}
		s.client = taskredis.NewEnqueuer(s.redis)
		s.engine = engine.New(engine.Config{
			Redis: s.server, Queues: map[string]int{"default": 1}, Concurrency: c.plan.Workers,
			Prefix: "lock:", TTL: 15 * time.Second, RenewEvery: 5 * time.Second, SafetyMargin: time.Second, FenceTTL: 75 * time.Second,
			Handler: func(ctx context.Context, t *engine.Task) error {
				var task asynqTask
				if err := json.Unmarshal(t.Payload, &task); err != nil {
					return err
				}
				return rec.Handle(ctx, task.ID)
			},
			RetryDelay: asynq.DefaultRetryDelayFunc, ShutdownTimeout: stopTimeout, Overrun: time.Minute, Crashes: 3, Losses: 10,
			Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		})
		return s, nil
	}
}

func (s *engineSystem) enqueue(ctx context.Context, tasks []workload.Task) error {
	for _, t := range tasks {
		payload, err := json.Marshal(asynqTask{t.ID, t.Key})
		if err != nil {
			return err
		}
		m := taskredis.Message{Type: asynqKind, Payload: payload, ID: fmt.Sprintf("%036d", t.ID), Queue: "default", Retry: 25, Timeout: 1800}
		e := taskredis.Enqueue{Message: &m, OwnID: true}
		if s.guarded {
			e.Resource = t.Key
		}
		if err := s.client.Enqueue(ctx, &e); err != nil {
			return err
		}
	}
	return nil
}

func (s *engineSystem) start(ctx context.Context) error {
	s.started = true
	return s.engine.Start(ctx, taskredis.Rules{})
}

func (s *engineSystem) stop(ctx context.Context) error {
	if !s.started {
		return nil
	}
	s.started = false
	return s.engine.Shutdown(ctx)
}

func (s *engineSystem) left(context.Context) (int, error) { return backend.AsynqLeft(s.redis) }

func (s *engineSystem) close() error {
	return errors.Join(s.stop(context.Background()), s.redis.Close(), s.server.Close())
}
