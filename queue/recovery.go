package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/lock"
)

// Recovery says what becomes of a guarded task that lost its lock while it ran, and of one whose
// worker died, or was cut off from Redis. asynq would run it again after a minute or more, and
// charge it an attempt. Siding puts it back within 25 s (15 to 20 as a rule, if the
// lock's TTL is not longer) and at no charge, but counts its crashes. If all workers were down, it
// does so within seconds of the first one's start. Of the servers that take tasks from the same
// queues one does this for all: it holds a lock of its own. asynq's own recovery is told only of
// the tasks that are left to it.
type Recovery struct {
	// Crashes is how many crashes a task is spared. After so many it is left to
	// asynq, so that a task which kills its worker comes to an end, archived once
	// its retries are used up. Defaults to 3; negative leaves all tasks to asynq.
	Crashes int
	// Losses is how many times a task that lost its lock while it ran, or whose write was
	// refused with [lock.ErrStale], runs again at no charge: after a second at first, and then
	// after twice as long each time, up to a minute. After so many its loss is a failure of its
	// own, so that a task that can never finish comes to an end. Defaults to 10; negative spares
	// none.
	Losses int
	// NoRetries says that also a task which is not to be retried (MaxRetry(0)) is run
	// again after a crash, although its handler had begun. Otherwise it is left to
	// asynq, which archives it.
	NoRetries bool
}

func (r Recovery) withDefaults() Recovery {
	if r.Crashes == 0 {
		r.Crashes = 3
	}
	if r.Losses == 0 {
		r.Losses = 10
	}
	return r
}

// recoveryEvery is how often silent tasks are looked for, give or take a tenth.
const recoveryEvery = 2 * time.Second

// recover puts back all tasks of queues that can be.
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
			silent, err := asynqredis.Silent(ctx, g.rdb, queue, skip)
			if err != nil {
				return err
			}
			for _, t := range silent {
				moved, err := g.putBack(ctx, t)
				if err != nil { // of one task; the others are looked after all the same
					errs = append(errs, fmt.Errorf("task %s: %w", t.ID, err))
				}
				if !moved {
					skip++
				}
				if ctx.Err() != nil {
					return errors.Join(errs...)
				}
			}
			if len(silent) < asynqredis.SilentBatch {
				break
			}
		}
	}
	return errors.Join(errs...)
}

// putBack has a silent task run again, if it is one of ours whose lock has lapsed
// and which is to be spared.
func (g *Guard) putBack(ctx context.Context, t asynqredis.SilentTask) (moved bool, err error) {
	resource := g.spared(t)
	if resource == "" {
		return false, nil
	}
	lapsed, err := g.lapsed(ctx, t, resource)
	if !lapsed || err != nil {
		return false, err
	}
	crash := fmt.Sprintf("its worker died or was cut off, and it runs again: crash %d of %d that are not charged", t.Crashes+1, g.cfg.Recovery.Crashes)
	moved, err = asynqredis.Recover(ctx, g.rdb, t, crash)
	if moved {
		g.cfg.Logger.WarnContext(ctx, "a task whose worker died or was cut off was put back",
			"task_id", t.ID, "task_type", t.Type, "queue", t.Queue, "resource", resource, "crashes", t.Crashes+1)
		g.cfg.Observe(Event{Kind: EventRecovered, TaskID: t.ID, TaskKind: t.Type, Queue: t.Queue, Resource: resource})
	}
	return moved, err
}

// spared returns the resource of a task that runs again at no charge should its worker have died;
// "" for one that is left to asynq.
func (g *Guard) spared(t asynqredis.SilentTask) (resource string) {
	if !t.Known() || t.Crashes >= g.cfg.Recovery.Crashes || t.Retries == 0 && t.Begun && !g.cfg.Recovery.NoRetries {
		return ""
	}
	resource, err := g.resourceOf(asynq.NewTaskWithHeaders(t.Type, t.Payload, t.Headers))
	if err != nil {
		return "" // it will be archived for it
	}
	return resource
}

// lapsed reports whether a silent task holds its resource no longer. It asks by
// taking the lock: a free one is handed on at once, by which a line that a
// dead holder left behind moves on, too.
func (g *Guard) lapsed(ctx context.Context, t asynqredis.SilentTask, resource string) (bool, error) {
	lease, err := g.Locker().Acquire(ctx, resource, &lock.Options{Holder: "recovery on " + g.self})
	if busy, ok := errors.AsType[*lock.BusyError](err); ok {
		// Of a split vote it may be the holder although another one is named.
		return !busy.Split && (busy.Foreign || !isHolder(t.Type, t.ID, busy.Holder)), nil
	}
	if err != nil {
		return false, err
	}
	if g.elsewhere != nil {
		err = lease.Release(ctx)
		return err == nil, err
	}
	next, err := lease.HandOff(ctx)
	if next != nil {
		g.call(ctx, next)
	}
	return err == nil, err
}
