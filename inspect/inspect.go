// Package inspect reads the state of locks, wait queues and guarded tasks: who holds what, who
// waits, and why a task does not run.
//
// An [Inspector] changes nothing in Redis. It works on one Redis, behind Sentinel, in a Cluster, with
// shards, and with locks on an external store. What a call costs depends on the question, and not on
// how many tasks wait. No call sends KEYS, and only [Inspector.Scan] sends SCAN.
//
// No answer has the token of a lock.
package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// A Config configures an [Inspector]. The zero value works for servers with the default prefix.
type Config struct {
	// Prefix is the Prefix of the servers' [lock.Config]. Defaults to "lock:".
	Prefix string
	// Resources is that of the servers' [queue.GuardConfig]. It finds the resource of a task that has
	// no [queue.HeaderResource]. Without it the resource of such a task is known only once
	// somebody waits for it.
	Resources map[string]queue.ResourceFunc
	// Crashes is that of the servers' [queue.Recovery]. Defaults to 3; negative for servers that
	// leave all tasks to asynq.
	Crashes int
}

// Errors of an [Inspector], for errors.Is.
var (
	// ErrUnknownTask says that no queue has a task of that id. It was never enqueued, has succeeded
	// and was not retained, or was deleted.
	ErrUnknownTask = errors.New("inspect: unknown task")
)

// An Inspector answers questions. It is safe for concurrent use.
type Inspector struct {
	rdb redis.UniversalClient
	cfg Config
}

// New returns an Inspector of the Redis of the tasks. It does not close rdb.
func New(rdb redis.UniversalClient, cfg Config) (*Inspector, error) {
	if rdb == nil {
		return nil, errors.New("inspect: redis: want a client, such as one made by queue.Redis, have none")
	}
	if _, spreads := rdb.(*redis.Ring); spreads {
		return nil, errors.New("inspect: redis: want a client of one Redis or of a Cluster, have a redis.Ring")
	}
	cfg.Prefix = cmp.Or(cfg.Prefix, "lock:")
	cfg.Crashes = cmp.Or(cfg.Crashes, 3)
	if err := (lock.Config{Prefix: cfg.Prefix}).Validate(); err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	return &Inspector{rdb: rdb, cfg: cfg}, nil
}

// Held lists the locks that are held or reserved: those of all running tasks, and those for which tasks
// wait. It reads at most 5,000 of the latter, and says how many were left out. It does not find a lock
// that is held by a program which is no task, and for which no task waits; see [Inspector.Scan].
func (i *Inspector) Held(ctx context.Context) (List, error) { return List{}, errors.ErrUnsupported }

// Top lists the n locks whose waiters have waited longest, summed up. It reads at most 5,000 contended
// locks, and says how many were left out.
func (i *Inspector) Top(ctx context.Context, n int) (List, error) { return List{}, errors.ErrUnsupported }

// Show returns a lock and count of its waiters in order, from a position on, 1 for the first. The
// waiters of paused queues come last. It is one round trip.
func (i *Inspector) Show(ctx context.Context, resource string, from, count int) (Lock, []Waiter, error) {
	return Lock{}, nil, errors.ErrUnsupported
}

// Why explains a task. queue is asynq's, which may be a shard; empty for any. If several queues have a
// task of this id, Why explains the one in the queue that comes first by name, and names the others.
// The error is [ErrUnknownTask] if no queue has the task.
func (i *Inspector) Why(ctx context.Context, queue, id string) (Explanation, error) {
	return Explanation{}, errors.ErrUnsupported
}

// Orphans lists active tasks whose worker died or was cut off, and those that run again after that.
func (i *Inspector) Orphans(ctx context.Context) ([]Orphan, error) { return nil, errors.ErrUnsupported }

// Servers lists asynq's servers. A server that was killed is listed for 10 s more.
func (i *Inspector) Servers(ctx context.Context) ([]Server, error) { return nil, errors.ErrUnsupported }

// Queues lists asynq's queues, and how many tasks each has in each state.
func (i *Inspector) Queues(ctx context.Context) ([]Queue, error) { return nil, errors.ErrUnsupported }

// Scan finds every lock that is held or reserved, also those of programs that are no tasks. It reads all
// keys of Redis by SCAN, on each master of a Cluster, so it may take minutes. It calls progress, if not
// nil, with how many keys it has seen so far.
func (i *Inspector) Scan(ctx context.Context, progress func(scanned int)) ([]Lock, error) {
	return nil, errors.ErrUnsupported
}
