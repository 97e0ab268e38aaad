package queue

import (
	"context"
	"errors"
	"time"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/hook"
	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/lock"
)

// A stepwisePath takes one round trip for each step: acquire, or park; release, wake, confirm. This
// path is right on every Redis.
type stepwisePath struct{}

// acquire asks for the lock in the task's name. If somebody holds it, the task joins its wait queue, or
// does what its policy says.
func (stepwisePath) acquire(ctx context.Context, r *run) (held *lease.Lease, err error) {
	if r.policy != nil {
		held, err = r.acquireByPolicy(ctx)
	} else if held, err = r.ask(ctx, r.ticket()); err != nil {
		err = r.park(r.notAcquired(ctx, err))
	}
	if err != nil {
		return nil, err
	}
	return r.unlessOverlapping(ctx, held)
}

func (stepwisePath) finish(ctx context.Context, r *run, held *lease.Lease, f *hook.Finish) error {
	err := r.handOff(ctx, held)
	if !errors.Is(err, lock.ErrLost) {
		r.send(ctx, f)
	}
	return err
}

// waiter is the name under which the task waits for a lock.
func (r *run) waiter() string { return asynqredis.WaiterName(r.info.Queue, r.info.ID) }

// ask asks for the lock for which tasks wait. If the lock is busy, the task joins its wait queue under
// ticket.
func (r *run) ask(ctx context.Context, ticket int64) (*lease.Lease, error) {
	return r.locks.Acquire(ctx, lease.Request{
		Resource: r.info.Resource, Holder: r.holder(), Waiter: r.waiter(), Came: ticket,
	})
}

// ticket is the one under which the task waits, which is earlier than it came if it has a priority.
func (r *run) ticket() int64 {
	if _, waits := r.attempt.WaitedFor(r.info.Resource); waits {
		return r.attempt.Came
	}
	return max(0, r.attempt.Came-r.advance)
}

// tryOnce asks for the lock under which the handler runs, and joins no wait queue.
func (r *run) tryOnce(ctx context.Context) (*lease.Lease, error) {
	return r.deciding.Acquire(ctx, lease.Request{Resource: r.info.Resource, Holder: r.holder()})
}

// holder is the name of the task while it holds a lock.
func (r *run) holder() string { return asynqredis.Holder(r.info.Kind, r.info.ID, r.self) }

// unlessOverlapping returns held, or hands it off and parks the task; see overlapping.
func (r *run) unlessOverlapping(ctx context.Context, held *lease.Lease) (*lease.Lease, error) {
	reason := r.overlapping()
	if reason == "" {
		return held, nil
	}
	r.notReleased(ctx, r.handOff(ctx, held))
	return nil, r.parkUnqueued(reason, lock.ErrLost)
}

// overlapping returns why the task may not start yet, or "". One reason is an earlier attempt of
// the task in this process, which lost the lock and has not returned. The other is an earlier task
// of the same id that is done, but that asynq has not acknowledged yet.
func (r *run) overlapping() string {
	switch {
	case r.attempt.EarlierUnacknowledged():
		return "an earlier task of this id, which is done, has not returned yet"
	case r.attempt.Overlaps():
		return "an earlier attempt, which lost " + r.info.Resource + ", has not returned yet"
	}
	return ""
}

// handOff releases a lock, and wakes the waiter for whom the lock is then reserved.
func (g *Guard) handOff(ctx context.Context, held *lease.Lease) error {
	next, err := held.HandOff(ctx)
	if next != nil {
		g.wake(ctx, next)
	}
	return err
}

// lateRelease is logged with the fault for which a lock was not released. The lock is free after its TTL.
const lateRelease = "a lock could not be released at once"

// notReleased logs err, if a release returned one that is not the loss of the lock.
func (r *run) notReleased(ctx context.Context, err error) {
	if err != nil && !errors.Is(err, lock.ErrLost) {
		r.faults.fault(ctx, r.log(), lateRelease, err)
	}
}

// send ends the attempt by a call that releases no lock. If the call fails, asynq's own one ends the
// attempt.
func (r *run) send(ctx context.Context, f *hook.Finish) {
	const patience = 3 * time.Second
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if _, err := f.Send(ctx, nil, nil); err != nil {
		r.faults.fault(ctx, r.log(), "a task could not be finished at once", err)
	}
}
