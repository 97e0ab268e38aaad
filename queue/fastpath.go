package queue

import (
	"context"
	"errors"

	"github.com/sidingq/siding/internal/fastpath"
	"github.com/sidingq/siding/internal/hook"
	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/redisstore"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/lock"
)

// A fastPath is for one Redis, on which a script may change a lock and its task. The dequeue takes the
// lock of its task, or parks the task. One script ends the attempt, releases the lock, and starts or
// wakes the next waiter. The embedded path does what the scripts leave undone.
type fastPath struct{ stepwisePath }

// lockInDequeue has the dequeues of g's servers take locks.
func (g *Guard) lockInDequeue() {
	cfg := g.locks.Config()
	g.notifier.AskTogether()
	g.hook.TakeLocks(hook.Locking{
		Source: fastpath.Dequeue(), Args: redisstore.LockArgs(cfg.Prefix, cfg.TTL, cfg.FenceTTL(), cfg.QueueTTL()),
		Release: fastpath.Release(), Host: g.self, Limited: func() string { return g.limits.Load().Names() }, Kinds: g.cfg.policyKinds(),
		Unused:   func(grant store.Grant) { g.releaseUnused(g.background, grant) },
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

func (fastPath) finish(ctx context.Context, r *run, held *lease.Lease, f *hook.Finish) error {
	name, args := f.Next()
	next, err := held.HandOffBy(ctx, name, args, f.Send)
	switch {
	case next == nil:
	case next.Grant != nil:
		f.Started(next.Grant, next.Reply)
	default:
		r.wake(ctx, next)
	}
	return err
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
		r.releaseUnused(ctx, grant)
		return nil
	}
	held, err := r.locks.Take(ctx, grant)
	if err != nil {
		return nil // the lock has been released
	}
	return held
}

// releaseUnused releases, in the background, a lock that was taken with a task and is not used.
func (g *Guard) releaseUnused(ctx context.Context, grant store.Grant) {
	ctx = context.WithoutCancel(ctx)
	g.work.Go(func() {
		held, err := g.locks.Take(ctx, grant)
		if err != nil {
			return // the lock has been released
		}
		if err := g.handOff(ctx, held); err != nil && !errors.Is(err, lock.ErrLost) {
			g.faults.fault(ctx, g.cfg.Logger.With("resource", grant.Resource), lateRelease, err)
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
	r.parked(t.Parked, r.parkedBusy(g.background, lease.NewBusy(t.Resource, result, nil)))
}
