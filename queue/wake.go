package queue

import (
	"context"
	"time"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/store"
)

const (
	// stillActive is how long a waiter that is woken while it is still active may take to park. A
	// live worker needs a round trip. A waiter can be dropped within the hand-off timeout only, so
	// half of that bounds stillActive.
	stillActive = time.Second
	// wakeRetry is how long after a failed call the next is tried.
	wakeRetry = 100 * time.Millisecond
)

// wake wakes the waiter of a reservation, or the next one that can come, in the background.
// [Guard.Wait] waits for the wake-up.
func (g *Guard) wake(ctx context.Context, r *store.Reservation) {
	ctx = context.WithoutCancel(ctx)
	g.work.Go(func() {
		for r != nil {
			r = g.wakeOne(ctx, r)
		}
	})
}

// wakeOne wakes the waiter of r. If that waiter cannot come, wakeOne returns the reservation of the
// next one. The result is nil if there is no other, or if the waiter was woken.
func (g *Guard) wakeOne(ctx context.Context, r *store.Reservation) *store.Reservation {
	timeout := g.locks.Config().HandoffTimeout
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	marked := false
	for {
		outcome, err := g.wakeTask(ctx, r)
		switch {
		case err != nil:
		case outcome == asynqredis.Woken:
			if err = g.locks.Confirm(ctx, r); err == nil {
				return nil
			}
		case outcome == asynqredis.Marked && !marked:
			marked = true
			if sleep.For(ctx, min(stillActive, timeout/2)) == nil {
				continue
			}
		default: // gone, active for too long, or of a paused queue
			var next *store.Reservation
			if next, err = g.locks.Drop(ctx, r, outcome == asynqredis.Paused); err == nil {
				return next
			}
		}
		if sleep.For(ctx, wakeRetry) != nil {
			// The hand-off timeout is over. The sweeper goes on from here.
			g.faults.fault(ctx, g.cfg.Logger.With("resource", g.locks.Resource(r.Key)), "a waiting task could not be woken", err)
			return nil
		}
	}
}

func (g *Guard) wakeTask(ctx context.Context, r *store.Reservation) (asynqredis.WakeResult, error) {
	queue, id, ok := asynqredis.ParseWaiter(r.Waiter)
	if !ok {
		return asynqredis.Gone, nil // not a task of ours
	}
	return asynqredis.Wake(ctx, g.rdb, queue, id, r.Ticket)
}
