package queue

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sidingq/siding/internal/engine"
	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/lock"
)

// elsewhere runs a task whose lock the engine cannot take: in a [ServerConfig.Store], or in another slot of a Cluster than
// its queue. The engine has put the tasks of the queue in order, by a lock of their own, and this one is the first. If
// somebody else has the lock, such as a task of another queue, it comes again after about a second, in its place. From then on
// it waits a moment each time if the Store has a wait queue, by when it came first: else those who hand the lock on among
// themselves would leave it no turn. One of several resources waits for none of them while it holds another.
func (s *Server) elsewhere(ctx context.Context, a *attempt, next engine.Handler) (err error) {
	asked, ran := time.Now(), false
	opts := &lock.Options{Holder: lease.Note(a.Type + " " + a.ID + " on " + s.self)}
	waiting := ctx
	names := store.Names(a.Resource)
	if a.Taken.Parks > 0 && s.queued && len(names) == 1 {
		opts.Wait = turnWait
		waiting = lease.WithWaited(ctx, a.waited(time.UnixMicro(a.Taken.Fence)))
	}
	var failed error // of the handler
	err = s.doUnder(waiting, names, opts, func(ctx context.Context) error {
		ran = true
		for _, name := range names {
			a.held = append(a.held, lock.Fence(ctx, name))
		}
		ctx = s.acquired(ctx, a, a.held[0])
		lose := func() {
			if errors.Is(context.Cause(ctx), lock.ErrLost) { // this lock; an error of the handler may be about a second one
				a.Lose() //nolint:contextcheck // it waits for the loop alone
			}
		}
		// What the handler returns is judged by that. It is told at once, too: the handler may never return, and others are to have the lock.
		defer lose()
		defer context.AfterFunc(ctx, lose)()
		failed = next(lease.WithWaited(ctx, 0), a.Task) // for a second lock the handler has not waited yet
		return failed
	})
	if ran {
		if errors.Is(err, lock.ErrLost) && !errors.Is(failed, lock.ErrLost) { // the release has found it lost
			a.Lose() //nolint:contextcheck // likewise
		}
		return failed
	}
	busy, waits := errors.AsType[*lock.BusyError](err)
	if waits {
		ev := a.event(EventParked)
		ev.Parked, ev.Holder, ev.Err = a.Taken.Parks+1, busy.Holder, s.busyErr(busy.Resource)
		s.observe(ev)
	} else {
		s.fault(ctx, "a lock could not be asked for", err)
	}
	// A lock about which nobody answers rests for as long as it has kept a slot from others, and not for longer: so long it also stands
	// still after a failover.
	snooze := &engine.SnoozeError{Err: err, After: jitter(max(time.Second, time.Since(asked)-opts.Wait)), Waits: waits, AtHead: true}
	// That nobody answers begins no wait; one that has begun goes on meanwhile.
	if policy, _ := s.policyOf(a.Message); policy.MaxWait > 0 && (waits || a.Taken.Waited) { // need has read it before
		snooze.MaxWait = max(policy.MaxWait-a.waited(time.UnixMicro(a.Taken.Fence))-time.Since(asked), 50*time.Millisecond)
		if a.Taken.Waited {
			snooze.After = min(snooze.After, snooze.MaxWait)
		}
	}
	return snooze
}

// doUnder runs work under the locks of some resources.
func (s *Server) doUnder(ctx context.Context, names []string, opts *lock.Options, work func(context.Context) error) error {
	for _, name := range slices.Backward(names) {
		next := work
		work = func(ctx context.Context) error { return s.underLock(ctx, name, opts, next) }
	}
	return work(ctx) //nolint:wrapcheck // the caller reads it
}

// underLock is [lock.Locker.Do], but that the lock is renewed for no longer than a handler may go on after the end of its context.
func (s *Server) underLock(ctx context.Context, name string, opts *lock.Options, work func(context.Context) error) (err error) {
	asks, answered := context.WithTimeout(ctx, opts.Wait+askWithin)
	held, err := s.locker.Acquire(asks, name, opts)
	answered()
	if err != nil {
		return err //nolint:wrapcheck // as above
	}
	defer func() {
		if rerr := held.Release(ctx); errors.Is(rerr, lock.ErrLost) {
			err = errors.Join(rerr, err)
		}
	}()
	renewed, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() {
		_ = sleep.For(renewed, s.cfg.Overrun)
		stop()
	})()
	held.Context(renewed)
	return work(held.Context(ctx))
}

// askWithin is how long a store may take to answer. An attempt keeps its slot meanwhile, which those of other resources need.
const askWithin = time.Second

// turnWait is how long a task that was refused before waits in the wait queue of its lock.
const turnWait = 500 * time.Millisecond
