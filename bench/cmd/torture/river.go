package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/sidingq/siding/bench/internal/backend"
)

// snooze is for how long River sends a task back whose key is busy.
const snooze = time.Second

type riverArgs struct {
	ID  int    `json:"id"`
	Key string `json:"key"`
}

func (riverArgs) Kind() string { return "torture_work" }

type riverSystem struct {
	setting

	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx] // that enqueues
}

func openRiver(ctx context.Context, s setting) (system, error) {
	config, err := pgxpool.ParseConfig(s.Server)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(s.Slots) + 10 //nolint:gosec // each running task has one for its lock
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	r := &riverSystem{setting: s, pool: pool}
	if r.client, err = river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: silent()}); err != nil {
		pool.Close()
	}
	return r, err
}

func silent() *slog.Logger { return slog.New(slog.DiscardHandler) }

func (r *riverSystem) enqueue(ctx context.Context, number int, t task) error {
	_, err := r.client.Insert(ctx, riverArgs{number, t.Key}, nil)
	return err
}

func (r *riverSystem) work(ctx context.Context, slots int, h handler) (func(context.Context) error, error) {
	known := river.NewWorkers()
	river.AddWorker(known, &riverWorker{pool: r.pool, handle: h})
	client, err := river.NewClient(riverpgxv5.New(r.pool), &river.Config{
		Queues:               map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: slots}},
		Workers:              known,
		Logger:               silent(),
		JobTimeout:           r.ttl(),
		RescueStuckJobsAfter: r.ttl(),
	})
	if err != nil {
		return nil, err
	}
	return client.Stop, client.Start(ctx)
}

type riverWorker struct {
	river.WorkerDefaults[riverArgs]

	pool   *pgxpool.Pool // has the locks
	handle handler
}

func (w *riverWorker) Work(ctx context.Context, job *river.Job[riverArgs]) error {
	taken, err := backend.WithAdvisoryLock(ctx, w.pool, job.Args.Key, func() error { return w.handle(ctx, job.Args.ID, job.Attempt-1, 0) })
	if err == nil && !taken {
		return river.JobSnooze(snooze)
	}
	return err
}

func (r *riverSystem) left(ctx context.Context) (int, error) {
	return backend.RiverLeft(ctx, r.pool)
}

func (r *riverSystem) close() error {
	r.pool.Close()
	return nil
}
