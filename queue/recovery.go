package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/store"
)

// Recovery says what becomes of a guarded task that lost its lock while it ran. It also says what
// becomes of a task whose worker died or was cut off from Redis.
//
// asynq would run a task of a dead worker again after a minute or more, and count a retry. Siding
// requeues the task within 25 s if the lock's TTL is not longer, and as a rule within 15 to 20 s.
// That uses no retry, but Siding counts the task's crashes. If all workers were down, Siding
// requeues the tasks within seconds of the first worker's start. One of the servers of the same
// queues, the elected one, does this for all. asynq's own recovery sees only the tasks that are
// left to asynq.
type Recovery struct {
	// Crashes is how many crashes of a task are tolerated. After so many the task is left to
	// asynq, which archives it once its retries are used up. So a task that kills its worker
	// comes to an end. Defaults to 3; negative leaves all tasks to asynq.
	Crashes int
	// Losses is how many times a task runs again after its lock was lost, or after its write was
	// refused with [lock.ErrStale]. That uses no retry. The task waits a second at first, and then
	// twice as long each time, up to a minute. A further loss is a failure of the task's own. So a
	// task that can never finish comes to an end. Defaults to 10; negative tolerates none.
	Losses int
	// NoRetries has a task without retries (MaxRetry(0)) run again after a crash, although its
	// handler had started. Otherwise such a task is left to asynq, which archives it.
	NoRetries bool
}

// recoveryEvery is how often orphans are looked for, give or take a tenth.
const recoveryEvery = 2 * time.Second

// recoverAll requeues orphans, time and again, until ctx ends.
func (g *Guard) recoverAll(ctx context.Context, queues []string) {
	for {
		if g.hook.Mismatched() {
			return // another asynq may keep the leases of its tasks in another way
		}
		g.fault(ctx, "killed tasks cannot be looked for", g.recover(ctx, queues))
		if sleep.For(ctx, recoveryEvery*9/10+rand.N(recoveryEvery/5)) != nil {
			return
		}
	}
}

// recover requeues the orphans of queues.
func (g *Guard) recover(ctx context.Context, queues []string) error {
	var errs []error
	for _, queue := range queues {
		leased, err := asynqredis.Lease(ctx, g.rdb, queue)
		if err != nil {
			return err
		}
		if leased > 0 {
			g.cfg.Logger.WarnContext(ctx, "active tasks had no lease, and were given one", "queue", queue, "tasks", leased)
		}
		for skip := 0; g.cfg.Recovery.Crashes > 0; {
			orphans, err := asynqredis.Orphans(ctx, g.rdb, queue, skip)
			if err != nil {
				return err
			}
			for _, t := range orphans {
				moved, err := g.recoverTask(ctx, t)
				if err != nil { // of one task; the others are recovered all the same
					errs = append(errs, fmt.Errorf("task %s: %w", t.ID, err))
				}
				if !moved {
					skip++
				}
				if ctx.Err() != nil {
					return errors.Join(errs...)
				}
			}
			if len(orphans) < asynqredis.OrphanBatch {
				break
			}
		}
	}
	return errors.Join(errs...)
}

// recoverTask requeues an orphan that is recoverable and whose lock has expired.
func (g *Guard) recoverTask(ctx context.Context, t asynqredis.Orphan) (moved bool, err error) {
	resource := g.recoverable(t)
	if resource == "" {
		return false, nil
	}
	expired, err := g.expired(ctx, t, resource)
	if !expired || err != nil {
		return false, err
	}
	r := &run{Guard: g, info: Info{Kind: t.Type, ID: t.ID, Queue: t.Queue, Resource: resource}}
	crash := fmt.Sprintf("its worker died or was cut off, and it runs again: crash %d of %d that use no retry", t.Crashes+1, g.cfg.Recovery.Crashes)
	moved, err = asynqredis.Recover(ctx, g.rdb, t, crash)
	if moved {
		r.log().WarnContext(ctx, "a task whose worker died or was cut off was requeued", "crashes", t.Crashes+1)
		g.cfg.Observe(r.event(EventRecovered))
	}
	return moved, err
}

// recoverable returns the resource of a task that is recovered if its worker has died. For a task
// that is left to asynq it returns "".
func (g *Guard) recoverable(t asynqredis.Orphan) (resource string) {
	if !t.Known() || t.Crashes >= g.cfg.Recovery.Crashes || t.Retries == 0 && t.Started && !g.cfg.Recovery.NoRetries {
		return ""
	}
	resource, err := g.resourceOf(asynq.NewTaskWithHeaders(t.Type, t.Payload, t.Headers))
	if err != nil {
		return "" // the guard archives such a task when it runs
	}
	return resource
}

// expired reports whether the lock of an orphan has expired. expired tries to acquire the lock. If
// that succeeds, the lock is handed off at once. That also wakes the waiters that a dead holder
// left behind.
func (g *Guard) expired(ctx context.Context, t asynqredis.Orphan, resource string) (bool, error) {
	if g.deciding == g.locks && g.locks.Limited(resource) {
		// An acquire might be granted while the orphan still has its permit. The sweeper scans each permit,
		// and wakes those who wait for it.
		return g.holdsNothing(ctx, t, resource)
	}
	held, err := g.deciding.Acquire(ctx, lease.Request{Resource: resource, Holder: "recovery on " + g.self})
	if busy, ok := errors.AsType[*lease.BusyError](err); ok {
		if busy.Holders > 0 { // from before its rule went away
			return g.holdsNothing(ctx, t, resource)
		}
		// After a split vote the orphan may be the holder, although another one is named.
		return !busy.Split && (busy.Foreign || !asynqredis.IsHolder(t.Type, t.ID, busy.Holder)), nil
	}
	if err != nil {
		return false, err
	}
	if g.deciding != g.locks {
		err = held.Release(ctx)
	} else {
		var next *store.Reservation
		if next, err = held.HandOffFound(ctx); next != nil {
			g.wake(ctx, next)
		}
	}
	return err == nil, err
}

// holdsNothing reports whether an orphan is not among the holders of a lock that has permits.
func (g *Guard) holdsNothing(ctx context.Context, t asynqredis.Orphan, resource string) (bool, error) {
	holders, err := g.locks.HoldersOf(ctx, resource)
	holds := slices.ContainsFunc(holders, func(name string) bool { return asynqredis.IsHolder(t.Type, t.ID, name) })
	return err == nil && !holds, err
}
