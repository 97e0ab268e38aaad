package engine

import (
	"context"
	"log/slog"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/taskredis"
)

// A Handler runs a task. The context ends with the task's timeout, its deadline, its cancellation, the loss of its
// lock, and the end of the server.
type Handler func(ctx context.Context, t *Task) error

// A Task is an attempt as its handler sees it.
type Task struct {
	*Message
	Taken *taskredis.Taken

	Resource string    // "" for a task without one
	EndsBy   time.Time // when its context ends by itself
}

// A Config configures a [Server]. The fields of asynq.Config have their meaning there.
type Config struct {
	Redis       redis.UniversalClient
	Queues      map[string]int // priorities; at least one
	Strict      bool
	Concurrency int
	Cluster     bool // Redis is a Cluster: a step reaches one queue

	Prefix       string        // of locks' keys
	TTL          time.Duration // of locks
	RenewEvery   time.Duration
	SafetyMargin time.Duration
	FenceTTL     time.Duration // how long a fencing token is kept after the last renewal

	// Resource returns the resource of a task, "" for none. With an error the task is archived. Nil goes by the
	// field that the client wrote.
	Resource func(m *taskredis.Message) (string, error)
	Handler  Handler

	BaseContext     func() context.Context
	IsFailure       func(error) bool
	RetryDelay      asynq.RetryDelayFunc
	OnError         func(ctx context.Context, t *Task, err error)
	ShutdownTimeout time.Duration

	HealthCheck         func(error)
	HealthCheckInterval time.Duration

	DelayedTaskCheckInterval time.Duration
	JanitorInterval          time.Duration
	JanitorBatchSize         int

	GroupAggregator  asynq.GroupAggregator
	GroupGracePeriod time.Duration
	GroupMaxDelay    time.Duration
	GroupMaxSize     int

	Overrun time.Duration // for which a handler may go on after its context has ended
	Crashes int           // that use no retry
	Losses  int           // of locks, that use no retry

	// Settled is told of tasks that have ended as their handlers said, with the outcome and the handler's error. It is called by the
	// loop and must not wait.
	Settled func(t *Task, k taskredis.Kind, err error)
	// Parked is told of tasks that found their resource busy. It is called by the loop and must not wait.
	Parked    func([]taskredis.ParkedTask)
	Recovered func(taskredis.Name) // is told of tasks that were put back as their servers had died

	Versions string // what the server runs, in words, for its entry

	Logger *slog.Logger
}
