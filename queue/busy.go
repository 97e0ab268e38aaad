package queue

import (
	"context"
	"errors"
	"time"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/redisstore"
	"github.com/sidingq/siding/lock"
)

// An endedError ends an attempt without its handler.
type endedError struct{ err error } // of the task; nil if it is done

func (e *endedError) Error() string { return "queue: the task has ended by its policy" }

// acquireByPolicy is stepwisePath.acquire for a task with a policy. The task asks under its own name, for
// which the lock may be reserved: after a shutdown has requeued the task, or as in externalPath.
func (r *run) acquireByPolicy(ctx context.Context) (*lease.Lease, error) {
	held, err := r.ask(ctx, r.ticket())
	if err == nil {
		return held, nil
	}
	e := r.notAcquired(ctx, err)
	_, waits := r.attempt.WaitedFor(r.info.Resource)
	if e.queued {
		if r.again, err = r.comesAgain(ctx, waits); err != nil {
			r.faults.fault(ctx, r.log(), "whether a task came again could not be asked for", err)
			return nil, r.park(e.soon())
		}
	}
	switch p := r.policy; {
	case waits || r.again || !e.queued: // its policy let it wait before, or the lock could not be asked for
	case p.OnBusy == OnBusyReject:
		r.leaveQueue(ctx, r.info, r.waiter())
		rejected := &RejectedError{Resource: r.info.Resource}
		if busy, ok := errors.AsType[*lock.BusyError](e.cause); ok {
			rejected.Holder = busy.Holder
		}
		return nil, r.reject(rejected)
	case p.OnBusy == OnBusyWait && r.deciding == r.locks:
		if p.MaxWaiting > 0 {
			if err := r.mayWait(ctx, e, waits); err != nil {
				return nil, err
			}
		}
		r.leaveQueue(ctx, r.info, r.waiter())
		if held := r.waitAtWork(ctx); held != nil {
			return held, nil
		}
		if held, err = r.ask(ctx, r.ticket()); err == nil {
			return held, nil
		}
		e = r.notAcquired(ctx, err)
	}
	if p := r.policy; e.queued && (r.equal() != "" || p.MaxWait > 0 || p.MaxWaiting > 0) {
		if err := r.mayWait(ctx, e, waits); err != nil {
			return nil, err
		}
	}
	return nil, r.park(e)
}

// soon has the task come again soon by itself, as Redis has not answered.
func (e *parkedError) soon() *parkedError {
	e.after = jitter(unqueuedDelay)
	return e
}

// comesAgain reports whether the task came again for no failure of its own. Its handler may have begun
// then, so its policy neither ends the task nor compares it with others from then on. Only MaxWait holds.
func (r *run) comesAgain(ctx context.Context, waits bool) (bool, error) {
	how := asynqredis.HowUnknown
	switch p := r.policy; {
	case waits && r.equal() == "": // it is parked again, whatever its policy
		return false, nil
	case r.equal() == "" && p.OnBusy != OnBusyReject && p.MaxWaiting == 0:
		return false, nil
	case waits:
		how = asynqredis.HowWaited
	case r.attempt.Interrupted(r.info.Resource):
		how = asynqredis.HowAgain
	}
	return r.attempt.CameAgain(ctx, r.rdb, how)
}

func (r *run) reject(e *RejectedError) error {
	e.archive = !r.policy.UseRetries
	ev := r.event(EventRejected)
	ev.Holder, ev.Err = e.Holder, e
	r.cfg.Observe(ev)
	return &endedError{e}
}

// waitAtWork waits for the lock in the wait queue while the task has its worker. It returns nil if it has
// not got the lock.
func (r *run) waitAtWork(ctx context.Context) *lease.Lease {
	r.waitedAtWork = true
	wait := r.policy.Wait
	if r.policy.MaxWait > 0 {
		wait = min(wait, r.policy.MaxWait) // then it asks again, and ends
	}
	if end, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(end)/2) // the handler has the same time, and parking needs some
	}
	got, err := r.locker.Acquire(ctx, r.info.Resource, &lock.Options{Wait: wait, Holder: r.holder()})
	if err != nil {
		return nil // the task asks again, and parks
	}
	got.Detach()
	held, err := r.locks.Resume(ctx, r.info.Resource, got.Token())
	if err != nil {
		_ = got.Release(context.WithoutCancel(ctx)) // or its TTL frees the lock
		return nil
	}
	held.Start(func() {})
	return held
}

// mayWait decides whether a task that is in the wait queue may wait there. If so, mayWait sets in e when the
// task comes by itself at the latest. If not, mayWait takes the task out, and returns the error that ends the
// attempt. If Redis does not answer, the error parks the task for a second.
func (r *run) mayWait(ctx context.Context, e *parkedError, waits bool) error {
	p := r.policy
	waiter := redisstore.Waiter{
		Key: r.locks.Key(r.info.Resource), Name: r.waiter(), Came: r.attempt.Came,
		Equal: r.equal(), TTL: fallback + 2*fallbackSpread,
	}
	if p.MaxWaiting > 0 && !waits && !r.again {
		waiter.Most = p.MaxWaiting
		if r.waitedAtWork {
			waiter.Most++ // its worker may not have left the wait queue yet
		}
	}
	found, err := waiter.Others(ctx, r.rdb)
	if err != nil {
		r.faults.fault(ctx, r.log(), "who waits for a resource could not be asked for", err)
		return r.park(e.soon())
	}
	waited := found.Now.Sub(r.came(e.ticket))
	late, err := r.late(ctx, waited)
	switch {
	case err != nil:
		return r.park(e.soon())
	case late:
		r.leaveQueue(ctx, r.info, waiter.Name)
		return &endedError{r.waitedTooLong(ctx, waited)}
	case found.Equal != "":
		if err := r.meet(ctx, waiter, found, e); err != nil {
			return err
		}
	case waiter.Most > 0 && found.Waiting > waiter.Most:
		r.leaveQueue(ctx, r.info, waiter.Name)
		return r.reject(&RejectedError{Resource: r.info.Resource, Waiting: found.Waiting - 1})
	}
	if p.MaxWait > 0 {
		waited = found.Now.Sub(r.came(e.ticket))             // it may have the position of another by now
		e.after = min(e.after, p.MaxWait-waited+time.Second) // asynq keeps whole seconds
	}
	return nil
}

// equal is what is the same for all tasks that are equal to this one, "" if none is.
func (r *run) equal() string {
	switch {
	case r.again:
		return ""
	case r.policy.OnBusy == OnBusyCoalesce:
		return r.info.Kind + "\x00" + string(r.task.Payload())
	case r.policy.OnBusy == OnBusyReplace:
		return r.info.Kind
	default:
		return ""
	}
}

// meet decides which of equal tasks stays. found.Equal is in the wait queue, and so is this one. If others
// come at the same moment, there is another equal one when that is decided, and so on. The error ends
// this one. Without an error, e parks it.
func (r *run) meet(ctx context.Context, waiter redisstore.Waiter, found redisstore.Others, e *parkedError) (err error) {
	waiter.Most = 0 // one of the two goes
	for range 10 {  // if more tasks come at the same moment, this one parks beside an equal one
		queue, id, _ := asynqredis.ParseWaiter(found.Equal) // only tasks are registered
		replaces := r.policy.OnBusy == OnBusyReplace && found.Came <= r.attempt.Came
		var state asynqredis.WaiterState
		if replaces {
			state, err = r.replace(ctx, &waiter, found)
		} else {
			state, err = asynqredis.StateOfWaiter(ctx, r.rdb, queue, id, waiter.Key)
		}
		if err == nil && state == asynqredis.WaiterRuns && !replaces && !r.overdue(found) {
			r.leaveQueue(ctx, r.info, waiter.Name)
			return r.coalesced(ctx, id)
		}
		if err == nil {
			waiter.Gone = found.Equal
			found, err = waiter.Others(ctx, r.rdb)
		}
		if state == asynqredis.WaiterDeleted {
			r.leaveQueue(ctx, r.info, waiter.Gone)
		}
		if err != nil { // it may have the other's ticket or its own, and comes again to see which
			r.faults.fault(ctx, r.log(), "an equal task could not be asked for", err)
			e.soon().queued = false
			return nil
		}
		if found.Equal == "" {
			break
		}
	}
	if found.Equal == "" && waiter.Ticket > 0 {
		e.ticket = waiter.Ticket
	}
	return nil
}

// overdue reports whether the equal task will not run, as it has waited for too long already.
func (r *run) overdue(found redisstore.Others) bool {
	return r.policy.MaxWait > 0 && found.Now.Sub(time.UnixMicro(found.Came)) > r.policy.MaxWait
}

// replace deletes the task of found.Equal, whose position waiter gets when it is registered, unless that
// one has waited for too long already. A task that cannot be deleted any more goes first.
func (r *run) replace(ctx context.Context, waiter *redisstore.Waiter, found redisstore.Others) (asynqredis.WaiterState, error) {
	queue, id, _ := asynqredis.ParseWaiter(found.Equal)
	state, priority, err := asynqredis.DeleteWaiter(ctx, r.rdb, queue, id, found.Ticket, waiter.Key)
	switch state {
	case asynqredis.WaiterDeleted:
		// As if it had come when that one did, with a priority of its own.
		ticket := found.Ticket + priority*asynqredis.Advance.Microseconds() - r.advance
		if r.policy.MaxWait == 0 || found.Now.Sub(r.came(ticket)) <= r.policy.MaxWait {
			waiter.Ticket = ticket
		}
		ev := r.event(EventReplaced)
		ev.TaskID, ev.Other = id, r.info.ID
		r.cfg.Observe(ev)
	case asynqredis.WaiterRuns:
		waiter.Ticket = 0
	case asynqredis.WaiterGone: // if this one deleted another before, it still gets that position
	}
	return state, err
}

// coalesced ends the attempt of a task that is dropped, as the task of id waits.
func (r *run) coalesced(ctx context.Context, id string) error {
	if w := r.task.ResultWriter(); w != nil {
		if _, err := w.Write([]byte("coalesced: " + id)); err != nil {
			r.faults.fault(ctx, r.log(), "the result of a coalesced task could not be written", err)
		}
	}
	ev := r.event(EventCoalesced)
	ev.Other = id
	r.cfg.Observe(ev)
	return &endedError{}
}

// came returns when a task with a ticket came to its lock.
func (r *run) came(ticket int64) time.Time { return time.UnixMicro(ticket + r.advance) }

// waitedUntil returns how long the task has waited when it got a lock with a fence. The fence and the
// ticket are times of Redis, in a Cluster perhaps of two nodes.
func (r *run) waitedUntil(fence int64) time.Duration {
	if r.attempt.Came == 0 {
		return 0
	}
	return time.UnixMicro(fence).Sub(r.came(r.ticket()))
}
