package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
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

// An engineSystem is a client of asynq, whose tasks get the field that a client of ours writes, and an engine.
type engineSystem struct {
	redis, server *redis.Client
	engine        *engine.Server
	guarded       bool
	started       bool
}

var engineEnqueue = redis.NewScript(`
redis.call('HSET', KEYS[1], 'msg', ARGV[1], 'state', 'pending', 'pending_since', ARGV[3])
if ARGV[4] ~= '' then redis.call('HSET', KEYS[1], 'siding_resource', ARGV[4]) end
redis.call('LPUSH', KEYS[2], ARGV[2])
if redis.call('EXISTS', KEYS[3]) == 0 then redis.call('LPUSH', KEYS[3], '1') end
return 1`)

func openEngine(guarded bool) opener {
	return func(_ context.Context, c course, rec *trace.Recorder, sent *redisstat.Sent) (system, error) {
		connect := func() *redis.Client {
			return redis.NewClient(&redis.Options{Addr: c.redis, Dialer: sent.Dial, ContextTimeoutEnabled: true})
		}
		s := &engineSystem{redis: connect(), server: connect(), guarded: guarded}
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
		id, resource := fmt.Sprintf("%036d", t.ID), ""
		if s.guarded {
			resource = t.Key
		}
		m := taskredis.Message{Type: asynqKind, Payload: payload, ID: id, Queue: "default", Retry: 25, Timeout: 1800}
		keys := []string{taskredis.TaskKey("default", id), taskredis.PendingKey("default"), taskredis.NotifyKey("default")}
		if err := engineEnqueue.Run(ctx, s.redis, keys, m.Encode(), id, strconv.FormatInt(time.Now().UnixNano(), 10), resource).Err(); err != nil {
			return err
		}
	}
	return s.redis.SAdd(ctx, "asynq:queues", "default").Err()
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
