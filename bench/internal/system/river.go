package system

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/sidingq/siding/bench/internal/workload"
)

// A River is how River is set up. It keeps the tasks of a key apart by an advisory lock.
type River struct {
	Snooze time.Duration // of a task whose key is taken
}

var silent = slog.New(slog.DiscardHandler)

// RiverTables makes the tables that River needs in a database.
func RiverTables(ctx context.Context, url string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: silent})
	if err != nil {
		return err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

// riverArgs are those of a task.
type riverArgs struct {
	ID  int    `json:"id"`
	Key string `json:"key"`
}

func (riverArgs) Kind() string { return "bench_work" }

type riverSystem struct {
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
}

// Open opens a client of River that also works.
func (r River) Open(ctx context.Context, c Config) (System, error) {
	config, err := pgxpool.ParseConfig(c.Server)
	if err != nil {
		return nil, err
	}
	// Each running task has a connection for its lock; River needs a few.
	config.MaxConns = int32(c.Workers) + 10 //nolint:gosec // there are 20
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	known := river.NewWorkers()
	river.AddWorker(known, &riverWorker{Config: c, pool: pool, snooze: r.Snooze})
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		JobTimeout: c.TTL, RescueStuckJobsAfter: c.TTL,
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: c.Workers}},
		Workers: known, Logger: silent,
	})
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &riverSystem{pool, client}, nil
}

type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	Config

	pool   *pgxpool.Pool // has the locks
	snooze time.Duration
}

func (w *riverWorker) Work(ctx context.Context, job *river.Job[riverArgs]) error {
	taken, err := withAdvisoryLock(ctx, w.pool, job.Args.Key, func() error { return w.Handle(ctx, job.Args.ID, job.Attempt-1, 0) })
	if err == nil && !taken {
		return river.JobSnooze(w.snooze)
	}
	return err
}

// withAdvisoryLock calls work with the advisory lock of a key, if the lock is free. The lock has a
// connection of its own, and ends with it.
func withAdvisoryLock(ctx context.Context, pool *pgxpool.Pool, key string, work func() error) (taken bool, err error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Release()
	err = conn.QueryRow(ctx, "SELECT pg_try_advisory_lock(hashtextextended($1, 0))", key).Scan(&taken)
	if err != nil || !taken {
		return false, err
	}
	defer func() {
		_, unlocked := conn.Exec(context.WithoutCancel(ctx), "SELECT pg_advisory_unlock(hashtextextended($1, 0))", key)
		err = errors.Join(err, unlocked)
	}()
	return true, work()
}

func (s *riverSystem) Enqueue(ctx context.Context, tasks []workload.Task) error {
	jobs := make([]river.InsertManyParams, len(tasks))
	for i, t := range tasks {
		jobs[i].Args = riverArgs{t.ID, t.Key}
	}
	_, err := s.client.InsertManyFast(ctx, jobs)
	return err
}

func (s *riverSystem) Start(ctx context.Context) error {
	return s.client.Start(context.WithoutCancel(ctx))
}

func (s *riverSystem) Stop(ctx context.Context) error { return s.client.Stop(ctx) }

func (s *riverSystem) Left(ctx context.Context) (left int, err error) {
	const count = "SELECT count(*) FROM river_job WHERE state IN ('available', 'pending', 'retryable', 'running', 'scheduled')"
	err = s.pool.QueryRow(ctx, count).Scan(&left)
	return left, err
}

func (s *riverSystem) Close() error {
	s.pool.Close()
	return nil
}
