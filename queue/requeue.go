package queue

import (
	"context"
	"errors"
	"slices"

	"github.com/sidingq/siding/internal/fetch"
	"github.com/sidingq/siding/internal/hook"
	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/sleep"
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
	held.SetTrace(held.ReleasedBy()) // the next one is handed the lock of the run before this task
	r.info.Resource = grant.Resource
	if requeued {
		r.rejoin(ctx)
	}
	r.notReleased(ctx, r.handOff(ctx, held))
}

// rejoin has a requeued task join its wait queue again, before those who came after it. The task was
// requeued under the ticket of its attempt, by which it is woken.
func (r *run) rejoin(ctx context.Context) {
	held, err := r.ask(context.WithoutCancel(ctx), r.attempt.Came)
	busy, refused := errors.AsType[*lease.BusyError](err)
	switch {
	case err == nil: // the lock was lost, and is free
		r.notReleased(ctx, r.handOff(ctx, held))
	case !refused:
		r.faults.fault(ctx, r.log(), "a requeued task has lost its position in the wait queue", err)
	case busy.Next != nil: // likewise, and others wait
		r.wake(ctx, busy.Next)
	}
}
