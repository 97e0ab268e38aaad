package backend

import (
	"context"
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
