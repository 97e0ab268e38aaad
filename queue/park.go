package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/lock"
)

// A parkedError parks a task. The task uses no retry and counts as no failure, as the cause is not its
// own.
type parkedError struct {
	reason string        // shown as the task's last error
	after  time.Duration // when the task comes by itself
	ticket int64         // its ticket, 0 for none
	queued bool          // it is in the wait queue under its ticket
	cause  error
}

func (e *parkedError) Error() string { return e.reason }
func (e *parkedError) Unwrap() error { return e.cause }

// parkedBy returns the error that parks the task, if there is one in err.
func parkedBy(err error) (*parkedError, bool) {
	return errors.AsType[*parkedError](err)
}

// park parks the task with e as its last error.
func (r *run) park(e *parkedError) error {
	if r.attempt == nil {
		return e // asynq's own retry, which Wrap does not count
	}
	park := asynqredis.Park{
		At:     time.Now().Add(e.after),
		Ticket: e.ticket, Resource: r.info.Resource,
		Reason: strings.ToValidUTF8(e.reason, "?"), // a text in an encoded task must be UTF-8
		Done:   func(parked int) { r.parked(parked, e) },
	}
	if e.queued {
		park.Key = r.locks.Key(r.info.Resource)
	}
	r.attempt.Park(park)
	return e
}

// parkUnqueued parks the task for a second, in no wait queue.
func (r *run) parkUnqueued(reason string, cause error) error {
	return r.park(&parkedError{reason: reason, after: jitter(unqueuedDelay), cause: cause})
}

// notAcquired returns the error that parks a task whose lock is busy, or could not be asked for.
func (r *run) notAcquired(ctx context.Context, err error) *parkedError {
	busy, ok := errors.AsType[*lease.BusyError](err)
	if !ok {
		r.faults.fault(ctx, r.log(), "a lock could not be asked for", err)
		return &parkedError{reason: err.Error(), after: jitter(unqueuedDelay), cause: err}
	}
	if busy.Next != nil {
		r.wake(ctx, busy.Next)
	}
	return r.parkedBusy(ctx, busy)
}

// parkedBusy returns the error that parks a task whose lock is busy.
func (r *run) parkedBusy(ctx context.Context, busy *lease.BusyError) *parkedError {
	if r.cfg.Logger.Enabled(ctx, slog.LevelDebug) {
		r.log().DebugContext(ctx, "resource busy", "position", busy.Position)
	}
	cause := lock.BusyError(busy.Busy)
	return &parkedError{
		reason: asynqredis.BusyReason(busy.Resource, busy.Holder, busy.Since, busy.Position, time.Now()), after: fallbackOf(busy), ticket: busy.Ticket, queued: busy.Position > 0, cause: &cause,
	}
}

// parked tells the observer that the task waits for its resource.
func (r *run) parked(times int, e *parkedError) {
	if errors.Is(e.cause, lock.ErrBusy) {
		ev := r.event(EventParked)
		ev.Parked, ev.Err = times, e
		if busy, ok := errors.AsType[*lock.BusyError](e.cause); ok {
			ev.Holder = busy.Holder
		}
		r.cfg.Observe(ev)
	}
}

// endedByAsynq takes a task out of its wait queue, if the task is in one. asynq has ended the task
// because its time is over, without a call of the guard. endedByAsynq returns asynq's error, and says
// if the task waited until then.
func (g *Guard) endedByAsynq(ctx context.Context, t *asynq.Task, ended error) error {
	resource, err := g.resourceOf(t)
	if err != nil || resource == "" {
		return ended
	}
	info := infoOf(ctx, t)
	info.Resource = resource
	g.leaveQueue(ctx, info, asynqredis.WaiterName(info.Queue, info.ID))
	if g.hook.Overdue(info.Queue, info.ID) {
		return fmt.Errorf("its deadline passed while it waited for %s: %w", resource, ended)
	}
	return ended
}

// leaveQueue takes the waiter of a task that has ended out of the wait queue of its resource.
func (g *Guard) leaveQueue(ctx context.Context, info Info, waiter string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	next, err := g.locks.Leave(ctx, lease.Request{Resource: info.Resource, Waiter: waiter})
	if next != nil { // the lock was reserved for the waiter
		g.wake(ctx, next)
	}
	if err != nil {
		// The tasks behind this one lose one hand-off timeout when its reservation expires.
		g.cfg.Logger.WarnContext(ctx, "a task that has ended is still in the wait queue", "task_id", info.ID, "queue", info.Queue, "resource", info.Resource, "error", err)
	}
}

const (
	// A queued task is woken, and the sweeper makes up for a wake that is lost. If both fail, the
	// task comes by itself after fallback, and fallbackSpread more at the latest. If a million
	// tasks wait, 280 come in a second.
	fallback       = time.Hour
	fallbackSpread = time.Hour
	// unqueuedDelay is for tasks that are in no wait queue.
	unqueuedDelay = time.Second
	// unwiredDelay is for tasks of a server that lacks a part of the guard.
	unwiredDelay = 5 * time.Minute
)

// fallbackOf returns when a task whose lock is busy comes by itself.
func fallbackOf(b *lease.BusyError) time.Duration {
	if b.Position == 0 {
		return jitter(unqueuedDelay)
	}
	return fallback + rand.N(fallbackSpread)
}

// lossDelay returns when a task that has lost its lock for the n-th time comes by itself.
func lossDelay(n int) time.Duration {
	const longest = time.Minute
	return min(unqueuedDelay<<min(n-1, 10), longest)
}

// jitter adds a random part to d, so that many tasks do not come all at once. The part is up to half a
// second or, if that is more, up to a twentieth of d.
func jitter(d time.Duration) time.Duration {
	return d + rand.N(max(d/20, 500*time.Millisecond))
}
