// Package system has the queues that run in the processes of the benchmarks: Siding's, asynq with a lock, and River. All have the
// same handlers.
package system

import (
	"context"
	"net"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/bench/internal/workload"
)

// A System is a queue, with its workers in this process.
type System interface {
	// Enqueue enqueues tasks in this order.
	Enqueue(ctx context.Context, tasks []workload.Task) error
	// Start starts the workers, which end with Stop and not with ctx.
	Start(ctx context.Context) error
	// Stop ends the workers, which take no more tasks, and waits for those that run. Call it after Start.
	Stop(ctx context.Context) error
	// Left returns how many tasks are still to be done, without those given up.
	Left(ctx context.Context) (int, error)
	Close() error
}

// A Handler runs a task, by its id. charged is how many attempts were counted against the task before, and fence that of
// its lease, 0 for none.
type Handler func(ctx context.Context, task, charged int, fence int64) error

// A Config says where a system keeps its tasks, and how it runs them.
type Config struct {
	Server  string // address of Redis, or URL of a PostgreSQL database, see [RiverTables]
	Dial    func(ctx context.Context, network, addr string) (net.Conn, error)
	Workers int           // how many tasks run at once
	TTL     time.Duration // after which a silent holder of a key is taken for dead; 0 for the system's default
	Drain   time.Duration // what tasks get that run when the workers stop
	Handle  Handler
}

// asynqLeft returns how many tasks of asynq are still to be done, without those given up.
func asynqLeft(client redis.UniversalClient) (left int, err error) {
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
