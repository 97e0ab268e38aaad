package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/bench/internal/redisstat"
	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// errRefused is the error of tasks in plain asynq, which keeps the text.
var errRefused = errors.New("resource is busy")

// asynqBytes returns how much memory a task takes in the retry set of plain asynq, after its
// handler has failed.
func asynqBytes(ctx context.Context, tasks int) (bytes float64, err error) {
	server, err := redistest.Run(ctx)
	if err != nil {
		return 0, err
	}
	defer server.Stop()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer func() { err = errors.Join(err, rdb.Close()) }()
	before, err := redisstat.Memory(ctx, rdb)
	if err != nil {
		return 0, err
	}
	if err := enqueue(ctx, rdb, tasks, func(n int) string { return fmt.Sprintf("many:%06d", n) }); err != nil {
		return 0, err
	}
	var failed atomic.Int64
	worker := asynq.NewServer(asynq.RedisClientOpt{Addr: server.Addr}, asynq.Config{
		Concurrency:    2 * clients,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Hour },
		LogLevel:       asynq.FatalLevel,
	})
	if err := worker.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		failed.Add(1)
		return errRefused
	})); err != nil {
		return 0, err
	}
	for failed.Load() < int64(tasks) && err == nil {
		err = sleep.For(ctx, time.Millisecond)
	}
	worker.Shutdown() // waits for the running handlers
	if err != nil {
		return 0, err
	}
	after, err := redisstat.Memory(ctx, rdb)
	return float64(after-before) / float64(tasks), err
}
