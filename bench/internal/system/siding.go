package system

import (
	"context"
	"errors"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/bench/internal/workload"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// A Siding is a client and a server of ours. The server has its defaults.
type Siding struct {
	Task func(workload.Task) queue.Task // [Guarded], [Nested] or [Unguarded]
}

// Guarded returns a task that needs the locks of all its keys.
func Guarded(t workload.Task) queue.Task { return sidingTask{ID: t.ID, Keys: t.Keys()} }

// Nested leaves the second key to the handler.
func Nested(t workload.Task) queue.Task { return sidingTask{t.ID, []string{t.Key}, t.Also} }

// Unguarded returns a task that needs no lock.
func Unguarded(t workload.Task) queue.Task { return freeTask{t.ID} }

type freeTask struct {
	ID int `json:"id"`
}

func (freeTask) Kind() string { return "bench:free" }

type sidingTask struct {
	ID   int      `json:"id"`
	Keys []string `json:"keys"`
	Also string   `json:"also,omitempty"` // whose lock its handler takes
}

func (sidingTask) Kind() string       { return "bench:work" }
func (t sidingTask) Resource() string { return queue.AllOf(t.Keys...) }

type sidingSystem struct {
	*queue.Server

	redis  *redis.Client
	client *queue.Client
	task   func(workload.Task) queue.Task
}

// Open opens the client and the server.
func (d Siding) Open(_ context.Context, c Config) (System, error) {
	cfg := queue.ServerConfig{
		Asynq:  asynq.Config{Concurrency: c.Workers, ShutdownTimeout: c.Drain},
		Lock:   lock.Config{TTL: c.TTL},
		Logger: silent,
	}
	rdb := redis.NewClient(&redis.Options{Addr: c.Server, Dialer: c.Dial, ContextTimeoutEnabled: true})
	client, err := queue.NewClient(rdb, queue.ClientConfig{})
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	server, err := queue.NewServer(queue.RedisOpt{Addrs: []string{c.Server}, Dialer: c.Dial}, cfg)
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	queue.Handle(server, func(ctx context.Context, t sidingTask) error {
		charged, _ := asynq.GetRetryCount(ctx)
		fence := lock.Fence(ctx, t.Keys[0])
		if t.Also == "" {
			return c.Handle(ctx, t.ID, charged, fence)
		}
		return server.Locker().Do(ctx, t.Also, nil, func(ctx context.Context) error { return c.Handle(ctx, t.ID, charged, fence) })
	})
	queue.Handle(server, func(ctx context.Context, t freeTask) error { return c.Handle(ctx, t.ID, 0, 0) })
	return &sidingSystem{Server: server, redis: rdb, client: client, task: d.Task}, nil
}

func (s *sidingSystem) Enqueue(ctx context.Context, tasks []workload.Task) error {
	for _, t := range tasks {
		if _, err := s.client.Enqueue(ctx, s.task(t), nil); err != nil {
			return err
		}
	}
	return nil
}

func (s *sidingSystem) Stop(ctx context.Context) error { return s.Shutdown(ctx) }

func (s *sidingSystem) Left(context.Context) (int, error) { return asynqLeft(s.redis) }

// Close closes the connections. A second Shutdown does nothing; one without Start closes those of the server.
func (s *sidingSystem) Close() error {
	return errors.Join(s.Shutdown(context.Background()), s.redis.Close())
}
