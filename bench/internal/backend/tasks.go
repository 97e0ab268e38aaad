package backend

import (
	"context"
	"errors"
	"log/slog"

	"github.com/hibiken/asynq"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// AsynqLeft returns how many tasks of asynq are still to be done, without those given up.
func AsynqLeft(client redis.UniversalClient) (left int, err error) {
	inspector := asynq.NewInspectorFromRedisClient(client)
	queues, err := inspector.Queues()
	for _, queue := range queues {
		info, infoErr := inspector.GetQueueInfo(queue)
		if infoErr != nil {
			return 0, infoErr
		}
		left += info.Pending + info.Active + info.Scheduled + info.Retry
	}
	return left, err
}

// RiverLeft returns how many jobs of River are still to be done, without those given up.
func RiverLeft(ctx context.Context, pool *pgxpool.Pool) (left int, err error) {
	const count = "SELECT count(*) FROM river_job WHERE state IN ('available', 'pending', 'retryable', 'running', 'scheduled')"
	err = pool.QueryRow(ctx, count).Scan(&left)
	return left, err
}

// RiverTables makes the tables that River needs.
func RiverTables(ctx context.Context, pool *pgxpool.Pool) error {
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

// WithAdvisoryLock calls work with the advisory lock of a key, if the lock is free. The lock has a
// connection of its own, and ends with it.
func WithAdvisoryLock(ctx context.Context, pool *pgxpool.Pool, key string, work func() error) (taken bool, err error) {
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
