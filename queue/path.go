package queue

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/hook"
	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/lock"
)

// A path takes and releases the lock of a task. The two paths, stepwisePath and fastPath, differ in
// their round trips only. An externalPath wraps one of them if the lock is on another store.
type path interface {
	// acquire returns the lease of the lock, or parks the task and returns the error that parks it.
	acquire(ctx context.Context, r *run) (*lease.Lease, error)
	// finish ends the attempt of a task that has succeeded, releases the lock and wakes the next
	// waiter. finish may prefetch a task.
	finish(ctx context.Context, r *run, held *lease.Lease, f *hook.Finish) error
}

// oneStep reports whether one script may change a lock and its task. In a Cluster they may be on
// different nodes.
func oneStep(rdb redis.Scripter) bool {
	_, cluster := rdb.(*redis.ClusterClient)
	return !cluster
}

// An externalPath takes the lock on [GuardConfig.Store] for a task that is the first in the wait
// queue. That queue belongs to a second lock, on the Redis of the tasks, which path takes first.
type externalPath struct{ path }

func (p externalPath) acquire(ctx context.Context, r *run) (*lease.Lease, error) {
	next, err := p.path.acquire(ctx, r)
	if err != nil {
		return nil, err
	}
	asked := time.Now()
	held, err := r.tryOnce(ctx)
	if err == nil {
		r.queued = next
		return held, nil
	}
	// Somebody who is no task has the lock, or the Store does not answer. The task stays the first.
	// It comes again after a second, or after as long again as the Store took to answer.
	e := r.notAcquired(ctx, err)
	e.after = jitter(max(unqueuedDelay, time.Since(asked)))
	e.ticket = r.attempt.Came
	if errors.Is(e.cause, lock.ErrBusy) { // it says that the task has waited, see ticket
		e.ticket = r.ticket()
	}
	const late = 6 * time.Second // asynq's own servers look for tasks that are due every 5 s
	r.notReleased(ctx, next.ReleaseFor(ctx, r.waiter(), e.after+late))
	return nil, r.park(e)
}

// An unqueuedPath is for a task of an asynq that is not the known one. Such a task has no ticket, so
// it cannot wait in a wait queue.
type unqueuedPath struct{ stepwisePath }

func (unqueuedPath) acquire(ctx context.Context, r *run) (*lease.Lease, error) {
	held, err := r.tryOnce(ctx)
	if err != nil {
		return nil, r.park(r.notAcquired(ctx, err))
	}
	return held, nil
}
