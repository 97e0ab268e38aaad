package main

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/bsm/redislock"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/bench/internal/backend"
	"github.com/sidingq/siding/internal/sleep"
)

// An asynqRecipe is how asynq keeps the tasks of a key apart.
type asynqRecipe struct {
	unique   bool          // by asynq.Unique; else by a lock
	patience time.Duration // between tries of a worker that waits for the lock; 0 to send the task back
	delay    time.Duration // of a task that is sent back
	timers   time.Duration // how often asynq looks for such tasks, and for new ones; 0 for its defaults
}

// errBusy sends a task back whose key is busy.
var errBusy = errors.New("the key is busy")

const asynqKind = "torture:work"

type asynqSystem struct {
	setting
	asynqRecipe

	redis  *redis.Client
	client *asynq.Client
}

func openAsynq(recipe asynqRecipe) func(context.Context, setting) (system, error) {
	return func(_ context.Context, s setting) (system, error) {
		rdb := redis.NewClient(&redis.Options{Addr: s.Server})
		return &asynqSystem{s, recipe, rdb, asynq.NewClientFromRedisClient(rdb)}, nil
	}
}

// enqueue waits with asynq.Unique until the task before is done.
func (a *asynqSystem) enqueue(ctx context.Context, number int, t task) error {
	// The task's number is its id, so that the payload is the same for all tasks of a key.
	payload, err := json.Marshal(t.Key)
	if err != nil {
		return err
	}
	options := []asynq.Option{asynq.TaskID(strconv.Itoa(number))}
	if a.unique {
		options = append(options, asynq.Unique(a.ttl()))
	}
	for {
		_, err = a.client.EnqueueContext(ctx, asynq.NewTask(asynqKind, payload, options...))
		if !errors.Is(err, asynq.ErrDuplicateTask) {
			break
		}
		if err := sleep.For(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	if errors.Is(err, asynq.ErrTaskIDConflict) {
		return nil // an earlier call has enqueued it
	}
	return err
}

func (a *asynqSystem) work(_ context.Context, slots int, h handler) (func(context.Context) error, error) {
	locker := redislock.New(a.redis)
	server := asynq.NewServerFromRedisClient(a.redis, asynq.Config{
		Concurrency:              slots,
		TaskCheckInterval:        a.timers,
		DelayedTaskCheckInterval: a.timers,
		ShutdownTimeout:          drainTimeout,
		LogLevel:                 asynq.FatalLevel,
		IsFailure:                func(err error) bool { return !errors.Is(err, errBusy) },
		RetryDelayFunc: func(n int, err error, t *asynq.Task) time.Duration {
			if errors.Is(err, errBusy) {
				return a.delay
			}
			return asynq.DefaultRetryDelayFunc(n, err, t)
		},
	})
	mux := asynq.NewServeMux()
	mux.HandleFunc(asynqKind, func(ctx context.Context, t *asynq.Task) error {
		var key string
		if err := json.Unmarshal(t.Payload(), &key); err != nil {
			return err
		}
		id, _ := asynq.GetTaskID(ctx)
		number, err := strconv.Atoi(id)
		if err != nil {
			return err
		}
		charged, _ := asynq.GetRetryCount(ctx)
		if a.unique {
			return h(ctx, number, charged, 0)
		}
		return a.locked(ctx, locker, key, func() error { return h(ctx, number, charged, 0) })
	})
	drain := func(context.Context) error {
		server.Shutdown()
		return nil
	}
	return drain, server.Start(mux)
}

// locked calls f with the lock of a key.
func (a *asynqSystem) locked(ctx context.Context, locker *redislock.Client, key string, f func() error) error {
	var options *redislock.Options
	if a.patience > 0 {
		options = &redislock.Options{RetryStrategy: redislock.LinearBackoff(a.patience)}
	}
	held, err := locker.Obtain(ctx, "lock:"+key, a.ttl(), options)
	if errors.Is(err, redislock.ErrNotObtained) {
		return errBusy
	}
	if err != nil {
		return err
	}
	err = f()
	if released := held.Release(context.WithoutCancel(ctx)); !errors.Is(released, redislock.ErrLockNotHeld) {
		return errors.Join(err, released)
	}
	return err // the lock has expired, and the work is done
}

func (a *asynqSystem) left(context.Context) (int, error) { return backend.AsynqLeft(a.redis) }

func (a *asynqSystem) close() error { return a.redis.Close() }
