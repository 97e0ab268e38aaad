package queue

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/lock"
)

// acquire takes the lock, or sends the task back.
func (r *run) acquire(ctx context.Context) (*lock.Lease, error) {
	if !r.attempt.Seen() {
		return r.acquireUnseen(ctx)
	}
	lease := r.adopt(ctx)
	var err error
	if lease == nil {
		lease, err = r.joinLine(ctx)
	}
	switch {
	case err != nil:
		return nil, r.sendBack(r.refused(ctx, err))
	case r.hook.Overlaps(r.attempt) || r.hook.Beside(r.attempt):
		return nil, r.makeWay(ctx, lease)
	case r.elsewhere != nil:
		return r.acquireElsewhere(ctx, lease)
	}
	return lease, nil
}

// holder is how the task is called while it holds a lock.
func (r *run) holder() string { return holderOf(r.info.Kind, r.info.ID) + r.self }

// joinLine asks for the lock for which tasks wait in line. Where it is busy the task joins that line.
func (r *run) joinLine(ctx context.Context) (*lock.Lease, error) {
	return r.locker.Acquire(ctx, r.info.Resource, &lock.Options{
		Holder: r.holder(), Waiter: asynqredis.WaiterName(r.info.Queue, r.info.ID), Came: r.attempt.Came,
	})
}

// try asks for the lock that counts, once, and joins no line.
func (r *run) try(ctx context.Context) (*lock.Lease, error) {
	return r.Locker().Acquire(ctx, r.info.Resource, &lock.Options{Holder: r.holder()})
}

// acquireUnseen is acquire for a task whose dequeue was that of an asynq that is not the known one.
func (r *run) acquireUnseen(ctx context.Context) (*lock.Lease, error) {
	lease, err := r.try(ctx)
	if err != nil {
		return nil, r.sendBack(r.refused(ctx, err))
	}
	return lease, nil
}

// acquireElsewhere takes the lock that counts for a task whose turn it is. While others have
// it, who are no tasks, or its Store does not answer, the task keeps its turn and comes again:
// after a second, or for as long again as the Store took to answer.
func (r *run) acquireElsewhere(ctx context.Context, turn *lock.Lease) (*lock.Lease, error) {
	// asynq's own servers look at their timers every 5 s.
	const late = 6 * time.Second
	asked := time.Now()
	_ = turn.Keep(ctx) // what counts is the other lock: who has lost its turn is not stopped
	lease, err := r.try(ctx)
	if err == nil {
		r.turn = turn
		return lease, nil
	}
	e := r.refused(ctx, err)
	e.after = jitter(max(unlinedDelay, time.Since(asked)))
	e.ticket = r.attempt.Came
	waiter := asynqredis.WaiterName(r.info.Queue, r.info.ID)
	if err := turn.KeepFor(ctx, waiter, e.after+late); err != nil && !errors.Is(err, lock.ErrLost) {
		r.faults.fault(ctx, r.log(), notReleased, err)
	}
	return nil, r.sendBack(e)
}

// adopt returns the lease of the lock that was taken with the task; nil when it has to be
// asked for.
func (r *run) adopt(ctx context.Context) *lock.Lease {
	if r.attempt == nil {
		return nil
	}
	grant, ok := r.attempt.Grant()
	if !ok {
		return nil
	}
	if grant.Resource != r.info.Resource {
		r.giveBack(ctx, grant)
		return nil
	}
	lease, err := r.locker.Adopt(ctx, grant)
	if err != nil {
		return nil // it has been given back
	}
	return lease
}

// giveBack releases, in the background, a lock that was taken with a task and is not
// wanted.
func (g *Guard) giveBack(ctx context.Context, grant lock.Grant) {
	ctx = context.WithoutCancel(ctx)
	g.work.Go(func() {
		if lease, err := g.locker.Adopt(ctx, grant); err == nil {
			g.handBack(ctx, lease, g.cfg.Logger.With("resource", grant.Resource))
		}
	})
}

// handBack releases a lock under which nothing was done.
func (g *Guard) handBack(ctx context.Context, lease *lock.Lease, log *slog.Logger) {
	if err := g.handOff(ctx, lease); err != nil {
		g.faults.fault(ctx, log, notReleased, err)
	}
}

// makeWay gives the lock back, if there is one, and puts the task aside for a moment. In this process
// an earlier attempt of the task, which lost the lock, has not returned yet; or an earlier task of its
// id is done, and asynq has not been told yet.
func (r *run) makeWay(ctx context.Context, lease *lock.Lease) error {
	if lease != nil {
		r.handBack(ctx, lease, r.log())
	}
	reason := "an earlier attempt, which lost " + r.info.Resource + ", has not returned yet"
	if r.hook.Beside(r.attempt) {
		reason = "an earlier task of this id, which is done, has not returned yet"
	}
	return r.sendBack(&unchargedError{reason: reason, after: jitter(unlinedDelay), cause: lock.ErrLost})
}

// refused says what becomes of a task whose lock could not be had.
func (r *run) refused(ctx context.Context, err error) *unchargedError {
	var busy *lock.BusyError
	if !errors.As(err, &busy) {
		r.faults.fault(ctx, r.log(), "a lock could not be asked for", err)
		return &unchargedError{reason: err.Error(), after: jitter(unlinedDelay), cause: err}
	}
	if busy.Next != nil {
		r.call(ctx, busy.Next)
	}
	r.log().DebugContext(ctx, "resource busy", "place", busy.Place)
	return &unchargedError{
		reason: busyReason(busy, time.Now()), after: timerOf(busy), ticket: busy.Ticket, inLine: busy.Place > 0, cause: busy,
	}
}

// refusedAhead is told of a task that was put aside before it came to its handler.
func (g *Guard) refusedAhead(t asynqredis.Refused) {
	r := &run{Guard: g, info: Info{Kind: t.Kind, ID: t.ID, Queue: t.Queue, Resource: t.Resource}}
	busy, err := g.locker.Refusal(t.Resource, t.Refusal)
	if err != nil {
		r.faults.fault(g.background, r.log(), "a refused task's line is unknown", err)
		return
	}
	if r.cfg.Logger.Enabled(g.background, slog.LevelDebug) {
		r.log().DebugContext(g.background, "resource busy", "place", busy.Place)
	}
	r.parked(t.Parked, &unchargedError{reason: busyReason(busy, time.Now()), ticket: busy.Ticket, cause: busy})
}

// parked tells the observer that the task waits for its resource.
func (r *run) parked(times int, e *unchargedError) {
	if errors.Is(e.cause, lock.ErrBusy) {
		ev := r.event(EventParked)
		ev.Refusals, ev.Err = times, e
		r.cfg.Observe(ev)
	}
}
