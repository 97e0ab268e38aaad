package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/lock"
)

// hold runs the handler under the lease. hold releases the lock when the handler has returned,
// panicked or exited its goroutine, and not before. asynq gives up on a handler whose time is over,
// but that handler may still be writing.
func (r *run) hold(ctx context.Context, held *lease.Lease, next asynq.Handler) (err error) {
	work := held.Protect(ctx)
	stopWatch := r.watch(work, held)
	err = errNotReturned
	defer func() {
		stopWatch()
		err = r.release(ctx, held, err)
	}()
	ev := r.event(EventAcquired)
	ev.Fence = held.Fence()
	r.waited(&ev)
	r.cfg.Observe(ev)
	if err := r.markStarted(ctx); err != nil {
		return err
	}
	if !held.Valid() { // a slow observer or a late answer of Redis has outlasted it; release parks the task
		if r.marksStart() {
			r.work.Go(r.unmarkStarted)
		}
		return lock.ErrLost
	}
	return next.ProcessTask(context.WithValue(work, runKey{}, r), r.task)
}

// waited says in ev how long the task waited, for whom, and what ended the wait.
func (r *run) waited(ev *Event) {
	handOff, handedOff := r.queued.HandedOff()
	if handedOff {
		ev.HandOff = max(handOff, 1) // a hand-off within the clock's resolution is one, too
	}
	holder, waited := r.attempt.WaitedFor(r.info.Resource)
	if !waited {
		return
	}
	ev.Holder, ev.Via, ev.ReleasedBy = holder, ViaTimer, r.queued.ReleasedBy()
	switch {
	case handedOff:
		ev.Via = ViaHandOff
	case r.queued.Recovered():
		ev.Via = ViaRecovery
	}
	ev.Waited = max(r.waitedUntil(r.queued.Fence()), 1)
}

// errNotReturned is the error that observers get for a handler that did not return. asynq sees the
// panic itself.
var errNotReturned = errors.New("queue: the handler panicked, or ended its goroutine")

// marksStart reports whether the start of the handler is recorded: that of a task without retries.
func (r *run) marksStart() bool { return r.attempt.Seen() && r.info.Retries == 0 }

// markStarted records that the handler of a task without retries starts. If the worker dies after that,
// the task does not run again.
func (r *run) markStarted(ctx context.Context) error {
	if !r.marksStart() {
		return nil
	}
	latest, err := r.attempt.MarkStarted(ctx, r.rdb)
	switch {
	case err != nil:
		r.faults.fault(ctx, r.log(), "the start of a task without retries could not be recorded", err)
		r.work.Go(r.unmarkStarted)
		return r.parkUnqueued(err.Error(), err)
	case !latest:
		return r.parkUnqueued("superseded by a later attempt", lock.ErrLost)
	}
	return nil
}

// unmarkStarted removes the record of markStarted once Redis answers again, as the handler has not
// started. If the parking of the task fails as well, the task is not recovered before that. After a
// minute asynq would archive the task.
func (r *run) unmarkStarted() {
	const limit = 2 * time.Minute
	ctx, cancel := context.WithTimeout(r.background, limit)
	defer cancel()
	for r.attempt.UnmarkStarted(ctx, r.rdb) != nil && sleep.For(ctx, jitter(wakeRetry)) == nil {
	}
}

// release hands the lock off, and returns what the handler's error becomes.
func (r *run) release(ctx context.Context, held *lease.Lease, err error) error {
	// The lease is asked before Redis, which may not answer. If a write was refused for a later
	// fence, there has been another holder. That counts more than the clock of this process.
	lost := !held.Valid() || errors.Is(err, lock.ErrStale)
	done, rerr := r.releaseAll(ctx, held, err == nil && !lost)
	ev := r.event(EventReleased)
	ev.Fence, ev.Held, ev.Err = held.Fence(), held.Held(), err
	switch {
	case done: // the lock was not lost
	case lost || errors.Is(rerr, lock.ErrLost):
		ev.Kind = EventLost
		reason := fmt.Sprintf("lost %s after %.1f s", r.info.Resource, ev.Held.Seconds())
		stale := errors.Is(err, lock.ErrStale)
		if by, why := r.revokedBy(ctx); by != "" {
			r.log().WarnContext(ctx, "lock released by an operator while the task ran", "held", ev.Held, "by", by, "reason", why)
			reason += ": " + by + " released it: " + why
		} else if stale {
			r.log().WarnContext(ctx, "a write of the task was refused, as somebody has held its lock since", "held", ev.Held, "error", err)
		} else {
			r.log().WarnContext(ctx, "lock lost while the task ran", "held", ev.Held)
		}
		if stale {
			reason += ": a write was refused, as somebody has held it since"
		}
		err = r.afterLoss(ctx, reason)
	case errors.Is(err, lock.ErrBusy) && !r.waitsForItself(err):
		// The handler wants a second lock. That this lock is busy is no failure of the task's own.
		err = r.parkUnqueued(err.Error(), lock.ErrBusy)
	default:
		err = r.parkUnavailable(err)
	}
	if ev.Kind != EventLost { // the handler's result counts, as the lease was valid until it returned
		r.notReleased(ctx, rerr)
	}
	r.cfg.Observe(ev)
	return err
}

// releaseAll releases the locks of the task and wakes the next waiter. If the task has succeeded,
// releaseAll also ends the attempt. done says that the task is done, and that no lock was lost.
func (r *run) releaseAll(ctx context.Context, held *lease.Lease, succeeded bool) (done bool, err error) {
	if held == r.queued {
		return r.releaseQueued(ctx, succeeded)
	}
	err = held.Release(ctx)
	done, queuedErr := r.releaseQueued(ctx, succeeded && !errors.Is(err, lock.ErrLost))
	r.notReleased(ctx, queuedErr)
	return done, err
}

// releaseQueued is releaseAll for the lock for which tasks wait.
func (r *run) releaseQueued(ctx context.Context, succeeded bool) (done bool, err error) {
	if r.attempt.Requeued() {
		r.rejoin(ctx)
	}
	if succeeded {
		if f := r.attempt.Finish(); f != nil {
			defer f.Close()
			err = r.path.finish(ctx, r, r.queued, f)
			return f.Done(), err
		}
	} // else asynq's own call has to end the attempt
	return false, r.handOff(ctx, r.queued)
}

// waitsForItself reports whether the lock that the handler found busy is the one under which it runs.
// The handler asked by another Locker, or with another context, and would find the lock busy each time.
func (r *run) waitsForItself(err error) bool {
	busy, ok := errors.AsType[*lock.BusyError](err)
	return ok && asynqredis.IsHolder(r.info.Kind, r.info.ID, busy.Holder)
}

// afterLoss parks a task that has lost its lock, for longer each time, and as often as Recovery
// tolerates. The error of afterLoss leaves out the handler's own, in which asynq would find a
// SkipRetry or RevokeTask.
func (r *run) afterLoss(ctx context.Context, reason string) error {
	losses := 1
	count, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if n, err := r.attempt.CountLoss(count, r.rdb); err == nil { // else it is not counted
		losses = max(n, 1)
	}
	if losses > r.cfg.Recovery.Losses {
		return fmt.Errorf("%s: %w %d times", reason, lock.ErrLost, losses)
	}
	return r.park(&parkedError{reason: reason, after: jitter(lossDelay(losses)), cause: lock.ErrLost})
}

// watch logs a handler that goes on for too long after its context has ended. watch then ends the
// renewal of the lock, so that the handler does not keep the resource for ever.
func (r *run) watch(work context.Context, held *lease.Lease) (stop func()) {
	running, returned := context.WithCancel(context.WithoutCancel(work))
	ended := context.AfterFunc(work, func() {
		if sleep.For(running, r.cfg.Overrun) == nil {
			r.log().ErrorContext(work, "a handler ignores its ended context; its lock is no longer renewed")
			held.Detach()
			r.queued.Detach()
		}
	})
	return func() {
		ended()
		returned()
	}
}
