package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/bench/internal/backend"
	"github.com/sidingq/siding/bench/internal/redisstat"
	"github.com/sidingq/siding/bench/internal/trace"
	"github.com/sidingq/siding/bench/internal/workload"
	"github.com/sidingq/siding/internal/metrics"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

func sidingContenders() []contender {
	modules := []string{"github.com/sidingq/siding"}
	of := func(name, config string, change func(*queue.ServerConfig)) contender {
		return contender{name: name, modules: modules, config: config, limits: true, rates: true, pairs: true, run: inProcess(openSiding(change, guarded), 1)}
	}
	defaults := func(*queue.ServerConfig) {}
	return []contender{
		of("siding", "queue.Server with defaults: lock TTL 15 s", defaults),
		of("siding-even", "the same as siding; a key with a rate has a second one, which spaces its starts evenly", evenly),
		of("siding-shards", "the same as siding; the queue is spread over 128 shards", func(c *queue.ServerConfig) { c.Shards = map[string]int{"default": 128} }),
		of("siding-metrics", "the same as siding, with the metrics of a worker", withMetrics),
		{
			name: "siding-unguarded", modules: modules, config: "the same with defaults; tasks without a resource", unsafe: true,
			run: inProcess(openSiding(defaults, unguarded), 1),
		},
		{
			name: "siding-nested", modules: modules, config: "the same; of two keys the handler takes the lock of the second", pairs: true,
			run: inProcess(openSiding(defaults, nested), 1),
		},
	}
}

// evenly adds a rate of one start for each part of a second.
func evenly(c *queue.ServerConfig) {
	for pattern, limit := range c.Limits {
		for _, r := range limit.Rates {
			limit.Rates = append(limit.Rates, lock.Rate{Starts: 1, Period: r.Period / time.Duration(r.Starts)})
		}
		c.Limits[pattern] = limit
	}
}

// withMetrics adds what a worker observes.
func withMetrics(c *queue.ServerConfig) {
	m, observe := metrics.New(), c.Observe
	c.Observe = func(e queue.Event) {
		observe(e)
		m.Observe(e)
	}
}

func guarded(t workload.Task) queue.Task { return sidingTask{ID: t.ID, Keys: t.Keys()} }

// nested leaves the second key to the handler.
func nested(t workload.Task) queue.Task { return sidingTask{t.ID, []string{t.Key}, t.Also} }

func unguarded(t workload.Task) queue.Task { return freeTask{t.ID} }

// A freeTask is a task of a plan that needs no lock.
type freeTask struct {
	ID int `json:"id"`
}

func (freeTask) Kind() string { return "bench:free" }

// A sidingTask is a task of a plan.
type sidingTask struct {
	ID   int      `json:"id"`
	Keys []string `json:"keys"`
	Also string   `json:"also,omitempty"` // whose lock its handler takes
}

func (sidingTask) Kind() string       { return "bench:work" }
func (t sidingTask) Resource() string { return queue.AllOf(t.Keys...) }

// A sidingSystem is a client and a server of ours.
type sidingSystem struct {
	redis  *redis.Client
	client *queue.Client
	server *queue.Server
	task   func(workload.Task) queue.Task
}

// openSiding returns an opener of a server that runs the tasks that task makes. The server has its
// defaults, except for what change sets.
func openSiding(change func(*queue.ServerConfig), task func(workload.Task) queue.Task) opener {
	return func(_ context.Context, c course, rec *trace.Recorder, sent *redisstat.Sent) (system, error) {
		cfg := queue.ServerConfig{
			Asynq:  asynq.Config{Concurrency: c.plan.Workers},
			Logger: slog.New(slog.DiscardHandler),
			Observe: func(e queue.Event) {
				if e.Kind == queue.EventParked {
					rec.Refuse()
				}
			},
		}
		if c.plan.Holders > 1 {
			limit := queue.Limit{Holders: c.plan.Holders}
			if c.plan.PerSecond > 0 {
				limit.Rates = []lock.Rate{{Starts: c.plan.PerSecond, Period: time.Second}}
			}
			cfg.Limits = map[string]queue.Limit{"*": limit}
		}
		change(&cfg)
		rdb := redis.NewClient(&redis.Options{Addr: c.redis, Dialer: sent.Dial, ContextTimeoutEnabled: true})
		client, err := queue.NewClient(rdb, queue.ClientConfig{Shards: cfg.Shards})
		if err != nil {
			return nil, errors.Join(err, rdb.Close())
		}
		server, err := queue.NewServer(queue.RedisOpt{Addrs: []string{c.redis}, Dialer: sent.Dial}, cfg)
		if err != nil {
			return nil, errors.Join(err, rdb.Close())
		}
		queue.Handle(server, func(ctx context.Context, t sidingTask) error {
			if t.Also == "" {
				return rec.Handle(ctx, t.ID)
			}
			return server.Locker().Do(ctx, t.Also, nil, func(ctx context.Context) error { return rec.Handle(ctx, t.ID) })
		})
		queue.Handle(server, func(ctx context.Context, t freeTask) error { return rec.Handle(ctx, t.ID) })
		return &sidingSystem{redis: rdb, client: client, server: server, task: task}, nil
	}
}

func (s *sidingSystem) enqueue(ctx context.Context, tasks []workload.Task) error {
	for _, t := range tasks {
		if _, err := s.client.Enqueue(ctx, s.task(t), nil); err != nil {
			return err
		}
	}
	return nil
}

func (s *sidingSystem) start(ctx context.Context) error { return s.server.Start(ctx) }

func (s *sidingSystem) stop(ctx context.Context) error { return s.server.Shutdown(ctx) }

func (s *sidingSystem) left(context.Context) (int, error) { return backend.AsynqLeft(s.redis) }

func (s *sidingSystem) close() error {
	// A second Shutdown does nothing; one without Start closes the connections.
	return errors.Join(s.server.Shutdown(context.Background()), s.redis.Close())
}
