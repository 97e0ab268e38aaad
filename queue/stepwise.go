package queue

import (
	"context"
	"errors"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/hook"
	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/lock"
)

// A stepwisePath takes one round trip for each step: acquire, or park; release, wake, confirm. This
// path is right on every Redis.
type stepwisePath struct{}

// acquire asks for the lock in the task's name. If somebody holds it, the task joins its wait queue.
func (stepwisePath) acquire(ctx context.Context, r *run) (*lease.Lease, error) {
	held, err := r.ask(ctx)
	if err != nil {
		return nil, r.park(r.notAcquired(ctx, err))
	}
	return r.unlessOverlapping(ctx, held)
}

func (stepwisePath) release(ctx context.Context, r *run, held *lease.Lease, succeeded bool) (done bool, err error) {
	f := r.finish(ctx, succeeded)
	if f == nil {
		return false, r.handOff(ctx, held)
	}
	defer f.Close()
	if err = r.handOff(ctx, held); errors.Is(err, lock.ErrLost) {
		return false, err
	}
	r.send(ctx, f)
	return f.Done(), err
}

// waiter is the name under which the task waits for a lock.
func (r *run) waiter() string { return asynqredis.WaiterName(r.info.Queue, r.info.ID) }

// ask asks for the lock for which tasks wait. If the lock is busy, the task joins its wait queue.
func (r *run) ask(ctx context.Context) (*lease.Lease, error) {
	return r.locks.Acquire(ctx, lease.Request{
		Resource: r.info.Resource, Holder: r.holder(), Waiter: r.waiter(), Came: r.attempt.Came,
	})
}

// tryOnce asks for the lock under which the handler runs, and joins no wait queue.
func (r *run) tryOnce(ctx context.Context) (*lease.Lease, error) {
	return r.deciding().Acquire(ctx, lease.Request{Resource: r.info.Resource, Holder: r.holder()})
}

// holder is the name of the task while it holds a lock.
func (r *run) holder() string { return asynqredis.Holder(r.info.Kind, r.info.ID, r.self) }

// unlessOverlapping returns held, or hands it off and parks the task; see overlapping.
func (r *run) unlessOverlapping(ctx context.Context, held *lease.Lease) (*lease.Lease, error) {
	reason := r.overlapping()
	if reason == "" {
		return held, nil
	}
	r.handBack(ctx, held, r.log())
	return nil, r.parkUnqueued(reason, lock.ErrLost)
}

// overlapping returns why the task may not start yet, or "". One reason is an earlier attempt of the
// task in this process, which lost the lock and has not returned. The other is an earlier task of
// the same id, which is done while asynq has not acknowledged it.
func (r *run) overlapping() string {
	switch {
	case r.hook.Beside(r.attempt):
		return "an earlier task of this id, which is done, has not returned yet"
	case r.hook.Overlaps(r.attempt):
		return "an earlier attempt, which lost " + r.info.Resource + ", has not returned yet"
	}
	return ""
}

// finish starts to end the attempt if its handler has succeeded. It returns nil if asynq's own call
// has to end the attempt.
func (r *run) finish(ctx context.Context, succeeded bool) *hook.Finish {
	if r.attempt.Requeued() {
		r.queueAgain(ctx)
	}
	if !succeeded {
		return nil
	}
	return r.attempt.Finish()
}

// handOff releases a lock, and wakes the waiter for whom the lock is then reserved.
func (g *Guard) handOff(ctx context.Context, held *lease.Lease) error {
	next, err := held.HandOff(ctx)
	if next != nil {
		g.wake(ctx, next)
	}
	return err
}
