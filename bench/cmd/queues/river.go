package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/sidingq/siding/bench/internal/backend"
	"github.com/sidingq/siding/bench/internal/redisstat"
	"github.com/sidingq/siding/bench/internal/trace"
	"github.com/sidingq/siding/bench/internal/workload"
)

func riverContenders() []contender {
	const (
		// many is how many tasks are enqueued with one call.
		many = 100
		// poll is as often as Siding looks, instead of once a second; cooldown is its
		// least, instead of 100 ms: with so few workers, it bounds the rate.
		poll, cooldown = 10 * time.Millisecond, time.Millisecond
	)
	of := func(snooze time.Duration) contender {
		return contender{
			name: fmt.Sprintf("river-%v", snooze), modules: []string{"github.com/riverqueue/river"}, needs: needsPostgres, limits: true,
			config: fmt.Sprintf("PostgreSQL without fsync; pg_try_advisory_lock, JobSnooze(%v) if it is taken, or for a limit a queue with so many workers; FetchCooldown %v, FetchPollInterval %v, enqueues %d with a call",
				snooze, cooldown, poll, many),
			run: inProcess(openRiver(snooze, cooldown, poll), many),
		}
	}
	return []contender{of(time.Second), of(100 * time.Millisecond)}
}

// riverArgs are those of a task.
type riverArgs struct {
	ID  int    `json:"id"`
	Key string `json:"key"`
}

func (riverArgs) Kind() string { return "bench_work" }

// A riverSystem is a client of River that also works.
type riverSystem struct {
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
}

func openRiver(snooze, cooldown, poll time.Duration) opener {
	return func(ctx context.Context, c course, rec *trace.Recorder, _ *redisstat.Sent) (system, error) {
		config, err := pgxpool.ParseConfig(c.database)
		if err != nil {
			return nil, err
		}
		// Each running task has a connection for its lock; River needs a few.
		config.MaxConns = int32(c.plan.Workers) + 10 //nolint:gosec // there are 20
		pool, err := pgxpool.NewWithConfig(ctx, config)
		if err != nil {
			return nil, err
		}
		worker, workers := &riverWorker{rec: rec, pool: pool, snooze: snooze}, c.plan.Workers
		if c.plan.Holders > 1 {
			worker.pool, workers = nil, c.plan.Holders
		}
		client, err := newRiver(ctx, pool, river.Config{FetchCooldown: cooldown, FetchPollInterval: poll}, workers, worker)
		if err != nil {
			pool.Close()
			return nil, err
		}
		return &riverSystem{pool: pool, client: client}, nil
	}
}

func newRiver(ctx context.Context, pool *pgxpool.Pool, config river.Config, workers int, w *riverWorker) (*river.Client[pgx.Tx], error) {
	if err := backend.RiverTables(ctx, pool); err != nil {
		return nil, err
	}
	known := river.NewWorkers()
	river.AddWorker(known, w)
	config.Queues = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}}
	config.Workers, config.Logger = known, slog.New(slog.DiscardHandler)
	return river.NewClient(riverpgxv5.New(pool), &config)
}

type riverWorker struct {
	river.WorkerDefaults[riverArgs]

	rec    *trace.Recorder
	pool   *pgxpool.Pool // has the locks; nil for no locks
	snooze time.Duration
}

func (w *riverWorker) Work(ctx context.Context, job *river.Job[riverArgs]) error {
	if w.pool == nil {
		return w.rec.Handle(ctx, job.Args.ID)
	}
	taken, err := backend.WithAdvisoryLock(ctx, w.pool, job.Args.Key, func() error { return w.rec.Handle(ctx, job.Args.ID) })
	if err == nil && !taken {
		w.rec.Refuse()
		return river.JobSnooze(w.snooze)
	}
	return err
}

func (s *riverSystem) enqueue(ctx context.Context, tasks []workload.Task) error {
	jobs := make([]river.InsertManyParams, len(tasks))
	for i, t := range tasks {
		jobs[i].Args = riverArgs{t.ID, t.Key}
	}
	_, err := s.client.InsertManyFast(ctx, jobs)
	return err
}

// start starts the workers, which end with stop and not with ctx.
func (s *riverSystem) start(ctx context.Context) error {
	return s.client.Start(context.WithoutCancel(ctx))
}

func (s *riverSystem) stop(ctx context.Context) error { return s.client.Stop(ctx) }

func (s *riverSystem) left(ctx context.Context) (int, error) {
	return backend.RiverLeft(ctx, s.pool)
}

func (s *riverSystem) close() error {
	s.pool.Close()
	return nil
}
