package queue

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/sidingq/siding/internal/fetch"
	"github.com/sidingq/siding/internal/hook"
	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/lock"
)

// requeuePrefetched requeues, in the background, prefetched tasks that no dequeue took.
func (g *Guard) requeuePrefetched(tasks []fetch.Task) {
	g.work.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(g.background), g.locks.Config().TTL)
		defer cancel()
		for _, t := range slices.Backward(tasks) { // the first comes to the head last
			g.requeue(ctx, t.Attempt.(*hook.Attempt)) //nolint:errcheck,forcetypeassert // see Finish.deliver
		}
	})
}

// requeue requeues the task of an attempt that has not started. The task keeps its position: it joins
// the wait queue again before its lock is released.
func (g *Guard) requeue(ctx context.Context, a *hook.Attempt) {
	r := &run{Guard: g, info: Info{ID: a.ID, Queue: a.Queue}, attempt: a}
	requeued, err := a.Requeue(ctx, g.rdb)
	for err != nil && sleep.For(ctx, jitter(wakeRetry)) == nil {
		requeued, err = a.Requeue(ctx, g.rdb)
	}
	if err != nil {
		r.faults.fault(ctx, r.log(), "a prefetched task could not be requeued: it will be recovered", err)
		return
	}
	grant, ok := a.Grant()
	if !ok {
		return
	}
	held, err := g.locks.Take(ctx, grant)
	if err != nil {
		return // the lock has been released
	}
	r.info.Resource = grant.Resource
	if requeued {
		r.queueAgain(ctx)
	}
	g.handBack(ctx, held, r.log())
}

// queueAgain has a requeued task join the wait queue, before those who came after it.
func (r *run) queueAgain(ctx context.Context) {
	held, err := r.ask(context.WithoutCancel(ctx))
	busy, refused := errors.AsType[*lease.BusyError](err)
	switch {
	case err == nil: // the lock was lost, and is free
		r.handBack(ctx, held, r.log())
	case !refused:
		r.faults.fault(ctx, r.log(), "a requeued task has lost its place in the wait queue", err)
	case busy.Next != nil: // likewise, and others wait
		r.wake(ctx, busy.Next)
	}
}

// handBack hands off a lock under which nothing was done.
func (g *Guard) handBack(ctx context.Context, held *lease.Lease, log *slog.Logger) {
	if err := g.handOff(ctx, held); err != nil {
		g.faults.fault(ctx, log, lateRelease, err)
	}
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
