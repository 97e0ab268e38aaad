package compare

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/queue"
)

// checkEvery is the TaskCheckInterval of the servers: how soon an idle one sees a task. asynq's
// default is a second.
const checkEvery = 10 * time.Millisecond

// A Way is one way to run tasks on asynq with a plain lock for each resource.
type Way struct {
	// Name is short, for a table.
	Name string

	tries  time.Duration // between two tries of a worker that waits for the lock; 0: the task comes again
	delay  time.Duration // what RetryDelayFunc says of a busy lock
	timers time.Duration // DelayedTaskCheckInterval; 0 for asynq's
	counts bool          // IsFailure is asynq's own, so that a busy lock uses a retry
}

// Ways are the three ways.
func Ways() []Way {
	return []Way{
		{Name: "sleep", tries: 10 * time.Millisecond},
		{Name: "retry 1s", delay: time.Second, timers: time.Second, counts: true},
		{Name: "retry 50ms", delay: 50 * time.Millisecond, timers: 50 * time.Millisecond},
	}
}

// Shared says which settings all ways have, in a few lines.
func Shared() []string {
	return []string{
		fmt.Sprintf("asynq; lock by SET NX PX, TTL %v, renewed every %v, released by its token", ttl, ttl/3),
		fmt.Sprintf("TaskCheckInterval %v, MaxRetry 25", checkEvery),
	}
}

// Settings says how the way differs from the others, in a few lines.
func (w Way) Settings() []string {
	if w.tries > 0 {
		return []string{fmt.Sprintf("a worker tries the lock every %v until it is free, and takes no other task", w.tries)}
	}
	failure := "IsFailure is false for a busy lock: it uses no retry"
	if w.counts {
		failure = "IsFailure is asynq's own: a busy lock uses a retry"
	}
	return []string{
		"a handler that finds the lock busy returns an error",
		failure,
		fmt.Sprintf("RetryDelayFunc %v, DelayedTaskCheckInterval %v instead of asynq's 5s", w.delay, w.timers),
		"asynq cuts the time of a retry to whole seconds, so a retry comes up to 1s earlier",
	}
}

// Config configures the server of a way. All fields are needed.
type Config struct {
	Redis   redis.UniversalClient
	Queue   string
	Workers int
	// Work runs a task under the lock of its resource.
	Work func(ctx context.Context, resource string, t *asynq.Task) error
	// Busy is told each time that a lock was busy.
	Busy func()
}

// A server is one of a way.
type server struct {
	Way
	Config

	lock plainLock
}

// Start begins to take tasks. stop ends the contexts of running tasks, waits for them, and leaves
// the Redis client open.
func (w Way) Start(ctx context.Context, cfg Config) (stop func(), err error) {
	s := server{w, cfg, plainLock{cfg.Redis, ttl}}
	base, end := context.WithCancel(context.WithoutCancel(ctx))
	config := asynq.Config{
		Concurrency:              cfg.Workers,
		Queues:                   map[string]int{cfg.Queue: 1},
		BaseContext:              func() context.Context { return base },
		TaskCheckInterval:        checkEvery,
		DelayedTaskCheckInterval: w.timers,
		RetryDelayFunc:           s.retryDelay,
		LogLevel:                 asynq.FatalLevel, // a busy lock is worth no line
	}
	if !w.counts {
		config.IsFailure = func(err error) bool { return err != nil && !errors.Is(err, errBusy) }
	}
	running := asynq.NewServerFromRedisClient(cfg.Redis, config)
	if err := running.Start(asynq.HandlerFunc(s.handle)); err != nil {
		end()
		return nil, err
	}
	return func() {
		running.Stop() // else it would take all tasks that wait, and fail each
		end()
		running.Shutdown()
	}, nil
}

func (s server) retryDelay(n int, err error, t *asynq.Task) time.Duration {
	if errors.Is(err, errBusy) {
		return s.delay
	}
	return asynq.DefaultRetryDelayFunc(n, err, t)
}

// handle runs a task under the lock of its resource.
func (s server) handle(ctx context.Context, t *asynq.Task) error {
	resource := t.Headers()[queue.HeaderResource]
	for {
		err := s.lock.do(ctx, resource, func(ctx context.Context) error { return s.Work(ctx, resource, t) })
		if !errors.Is(err, errBusy) {
			return err
		}
		s.Busy()
		if s.tries == 0 {
			return err
		}
		if err := sleep.For(ctx, s.tries); err != nil {
			return err
		}
	}
}
