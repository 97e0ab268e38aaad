package queue

import (
	"context"
	"time"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/lock"
)

const (
	// stillActive is how long a waiter that is called while it is still active
	// may take to park. Its worker needs a round trip; one that died needs for ever.
	// Of a short grace it is half, as a waiter can be dropped within the grace only.
	stillActive = time.Second
	// callRetry is how long after a failed call the next is tried.
	callRetry = 100 * time.Millisecond
)

// call calls the waiter of a reservation, or the next one that can come, in the
// background; the guard's Wait waits for it.
func (g *Guard) call(ctx context.Context, r *lock.Reservation) {
	ctx = context.WithoutCancel(ctx)
	g.work.Go(func() {
		for r != nil {
			r = g.callOne(ctx, r)
		}
	})
}

// callOne calls the waiter of r. When that one cannot come it returns the next
// waiter's reservation, nil when there is none or all is done.
func (g *Guard) callOne(ctx context.Context, r *lock.Reservation) *lock.Reservation {
	grace := g.locker.Config().Grace
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	noted := false
	var err error
	for {
		var outcome asynqredis.Promotion
		var next *lock.Reservation
		outcome, err = g.promote(ctx, r)
		switch {
		case err != nil:
		case outcome == asynqredis.Called:
			if err = g.locker.Called(ctx, r); err == nil {
				return nil
			}
		case outcome == asynqredis.Noted && !noted:
			noted = true
			if sleep.For(ctx, min(stillActive, grace/2)) == nil {
				continue
			}
		case outcome == asynqredis.Paused:
			if next, err = g.locker.SetAside(ctx, r); err == nil {
				return next
			}
		default: // gone, or active for too long
			if next, err = g.locker.PassOn(ctx, r); err == nil {
				return next
			}
		}
		if sleep.For(ctx, callRetry) != nil {
			// The grace is over. The sweeper goes on from here.
			g.faults.fault(ctx, g.cfg.Logger.With("resource", r.Resource), "a waiting task could not be called", err)
			return nil
		}
	}
}

func (g *Guard) promote(ctx context.Context, r *lock.Reservation) (asynqredis.Promotion, error) {
	queue, id, ok := asynqredis.ParseWaiter(r.Waiter)
	if !ok {
		return asynqredis.Gone, nil // not a task of ours
	}
	return asynqredis.Promote(ctx, g.rdb, queue, id, r.Ticket)
}
