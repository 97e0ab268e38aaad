package queue

import (
	"context"

	"github.com/sidingq/siding/internal/fastpath"
	"github.com/sidingq/siding/internal/hook"
	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/redisstore"
	"github.com/sidingq/siding/internal/store"
)

// A fastPath is for one Redis, on which a script may change a lock and its task. The dequeue takes the
// lock of its task, or parks the task. One script ends the attempt, releases the lock, and starts or
// wakes the next waiter. The embedded path does what the scripts leave undone.
type fastPath struct{ stepwisePath }

// lockInDequeue has the dequeues of g's servers take locks.
func (g *Guard) lockInDequeue() {
	cfg := g.locks.Config()
	g.hook.TakeLocks(hook.Locking{
		Source: fastpath.Dequeue(), Args: redisstore.LockArgs(cfg.Prefix, cfg.TTL, cfg.FenceTTL(), cfg.QueueTTL()),
		Release: fastpath.Release(), Host: g.self,
		Unused:   func(grant store.Grant) { g.giveBack(g.background, grant) },
		Fallback: fallback, Spread: fallbackSpread, Parked: g.parkedInDequeue,
	})
}

func (p fastPath) acquire(ctx context.Context, r *run) (*lease.Lease, error) {
	held := r.granted(ctx)
	if held == nil {
		return p.stepwisePath.acquire(ctx, r)
	}
	return r.unlessOverlapping(ctx, held)
}

func (fastPath) release(ctx context.Context, r *run, held *lease.Lease, succeeded bool) (done bool, err error) {
	f := r.finish(ctx, succeeded)
	if f == nil {
		return false, r.handOff(ctx, held)
	}
	defer f.Close()
	name, args := f.Next()
	next, err := held.HandOffBy(ctx, name, args, f.Send)
	if next.Grant != nil {
		f.Started(next.Grant, next.Reply)
	}
	if next.Reservation != nil {
		r.wake(ctx, next.Reservation)
	}
	return f.Done(), err
}

// granted returns the lease of the lock that the dequeue took; nil if the run has to ask for the lock.
// A payload may look like a header. The dequeue has then taken the lock of another resource, which
// granted releases.
func (r *run) granted(ctx context.Context) *lease.Lease {
	grant, ok := r.attempt.Grant()
	if !ok {
		return nil
	}
	if grant.Resource != r.info.Resource {
		r.giveBack(ctx, grant)
		return nil
	}
	held, err := r.locks.Take(ctx, grant)
	if err != nil {
		return nil // the lock has been released
	}
	return held
}

// giveBack releases, in the background, a lock that was taken with a task and is not used.
func (g *Guard) giveBack(ctx context.Context, grant store.Grant) {
	ctx = context.WithoutCancel(ctx)
	g.work.Go(func() {
		if held, err := g.locks.Take(ctx, grant); err == nil {
			g.handBack(ctx, held, g.cfg.Logger.With("resource", grant.Resource))
		}
	})
}

// parkedInDequeue tells the observer of a task that its dequeue has parked.
func (g *Guard) parkedInDequeue(t hook.Parked) {
	r := &run{Guard: g, info: Info{Kind: t.Kind, ID: t.ID, Queue: t.Queue, Resource: t.Resource}}
	result, err := redisstore.BusyResult(t.Busy)
	if err != nil {
		r.faults.fault(g.background, r.log(), "who holds the lock of a parked task is unknown", err)
		return
	}
	r.parked(t.Parked, r.parkedBusy(g.background, g.locks.Busy(t.Resource, result)))
}
