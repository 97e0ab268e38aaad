package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/lock"
)

// hold runs the handler under the lease. The lock is released when the handler
// has returned, panicked or exited its goroutine, not before: asynq gives up on a
// handler whose time is over, but the handler may still be writing.
func (r *run) hold(ctx context.Context, lease *lock.Lease, next asynq.Handler) (err error) {
	ev := r.event(EventAcquired)
	ev.Fence = lease.Fence()
	if wait, ok := r.inTurn(lease).HandedOff(); ok {
		ev.HandOff = max(wait, 1) // a hand-off within the clock's resolution is one, too
	}
	r.cfg.Observe(ev)

	work := lease.Keep(ctx)
	stopWatch := r.watch(work, lease)
	err = errNotReturned
	defer func() {
		stopWatch()
		err = r.release(ctx, lease, err)
	}()
	if err := r.begin(ctx); err != nil {
		return err
	}
	return next.ProcessTask(WithInfo(work, r.info), r.task)
}

// errNotReturned is what observers are told of a handler that did not return. asynq sees the
// panic itself.
var errNotReturned = errors.New("queue: the handler panicked, or ended its goroutine")

// inTurn returns the lease of the lock for which tasks wait in line: lease, or the task's turn.
func (r *run) inTurn(lease *lock.Lease) *lock.Lease {
	if r.turn != nil {
		return r.turn
	}
	return lease
}

// begin writes down that the handler of a task without retries is about to begin:
// should its worker die from here on, the task is not to run again.
func (r *run) begin(ctx context.Context) error {
	if !r.attempt.Seen() || r.info.Retries > 0 {
		return nil
	}
	latest, err := r.attempt.Begin(ctx, r.rdb)
	switch {
	case err != nil:
		r.faults.fault(ctx, r.log(), "the beginning of a task without retries could not be written down", err)
		r.work.Go(r.notBegun)
		return r.sendBack(&unchargedError{reason: err.Error(), after: jitter(unlinedDelay), cause: err})
	case !latest:
		return r.sendBack(&unchargedError{reason: "superseded by a later attempt", after: jitter(unlinedDelay), cause: lock.ErrLost})
	}
	return nil
}

// notBegun takes back, once Redis answers again, that the handler begins: it has not.
// Until that is known the task is not put back, should its parking fail as well;
// after a minute asynq would archive it.
func (r *run) notBegun() {
	const limit = 2 * time.Minute
	ctx, cancel := context.WithTimeout(r.background, limit)
	defer cancel()
	for r.attempt.NotBegun(ctx, r.rdb) != nil && sleep.For(ctx, jitter(callRetry)) == nil {
	}
}

const notReleased = "a lock could not be released at once"

// release hands the lock on and says what the handler's error has become.
func (r *run) release(ctx context.Context, lease *lock.Lease, err error) error {
	// Asked before: a Redis that does not answer cannot say that the lease was lost.
	// Where what is written to has seen a later fence, there has been another holder, whatever
	// this one's clock says.
	lost := !lease.Valid() || errors.Is(err, lock.ErrStale)
	finished, rerr := r.letGo(ctx, lease, err == nil && !lost)
	ev := r.event(EventReleased)
	ev.Fence, ev.Held, ev.Err = lease.Fence(), lease.Held(), err
	switch {
	case finished: // the lock was not lost
	case lost || errors.Is(rerr, lock.ErrLost):
		ev.Kind = EventLost
		r.log().WarnContext(ctx, "lock lost while the task ran", "held", ev.Held)
		reason := fmt.Sprintf("lost %s after %.1f s", r.info.Resource, ev.Held.Seconds())
		if errors.Is(err, lock.ErrStale) {
			reason += ": a write was refused, as somebody has held it since"
		}
		err = r.afterLoss(ctx, reason)
	case errors.Is(err, lock.ErrBusy) && !r.waitsForItself(err):
		// A second lock of the handler's: it is no failure of the task's that somebody has it.
		err = r.sendBack(&unchargedError{reason: err.Error(), after: jitter(unlinedDelay), cause: lock.ErrBusy})
	default:
		err = r.standBy(err)
	}
	if rerr != nil && ev.Kind != EventLost {
		// The handler's word stands: the lease was valid until it returned.
		r.faults.fault(ctx, r.log(), notReleased, rerr)
	}
	r.cfg.Observe(ev)
	return err
}

// waitsForItself reports whether the lock that the handler found busy is the one under which it runs.
// The handler asked for it by another Locker, or with another context, and would find it so each time.
func (r *run) waitsForItself(err error) bool {
	busy, ok := errors.AsType[*lock.BusyError](err)
	return ok && isHolder(r.info.Kind, r.info.ID, busy.Holder)
}

// afterLoss says what becomes of a task that has lost its lock: it runs again, later each time,
// until it has been spared as often as Recovery says. The handler's own error is not told to
// asynq, which would find a SkipRetry or RevokeTask in it.
func (r *run) afterLoss(ctx context.Context, reason string) error {
	losses := 1
	if r.attempt != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if n, err := r.attempt.Lost(ctx, r.rdb); err == nil { // else it is not counted
			losses = max(n, 1)
		}
	}
	if losses > r.cfg.Recovery.Losses {
		return fmt.Errorf("%s: %w for the %s time", reason, lock.ErrLost, ordinal(losses))
	}
	return r.sendBack(&unchargedError{reason: reason, after: jitter(lossDelay(losses)), cause: lock.ErrLost})
}

// letGo releases the lock, and then the task's turn, if it has one. It finishes the task if its
// handler has succeeded, see handOver, and reports whether it did.
func (r *run) letGo(ctx context.Context, lease *lock.Lease, succeeded bool) (finished bool, err error) {
	if r.turn == nil {
		return r.handOver(ctx, lease, succeeded)
	}
	err = lease.Release(ctx)
	finished, terr := r.handOver(ctx, r.turn, succeeded && !errors.Is(err, lock.ErrLost))
	if terr != nil && !errors.Is(terr, lock.ErrLost) {
		r.faults.fault(ctx, r.log(), notReleased, terr)
	}
	return finished, err
}

// handOver releases the lock and passes it on. If the handler has succeeded, it also finishes the task
// and takes the next one for the worker. All this is one call; in a Cluster it is two, or three.
func (r *run) handOver(ctx context.Context, lease *lock.Lease, succeeded bool) (finished bool, err error) {
	if r.attempt != nil && r.attempt.Requeued() {
		r.joinAgain(ctx)
	}
	var f *asynqredis.Finish
	if succeeded && r.attempt != nil {
		f = r.attempt.Finish()
	}
	if f == nil {
		return false, r.handOff(ctx, lease)
	}
	defer f.Close()
	if !r.hook.Together() {
		if err := r.handOff(ctx, lease); errors.Is(err, lock.ErrLost) {
			return false, err
		}
		r.send(ctx, f)
		return f.Done(), err
	}
	name, args := f.Next()
	handed, err := lease.HandOver(ctx, name, args, f.Send)
	if handed.Grant != nil {
		f.Begun(handed.Grant, handed.Answer)
	}
	if handed.Next != nil {
		r.call(ctx, handed.Next)
	}
	return f.Done(), err
}

// handOff releases a lock, and calls the waiter whose turn it is.
func (g *Guard) handOff(ctx context.Context, lease *lock.Lease) error {
	next, err := lease.HandOff(ctx)
	if next != nil {
		g.call(ctx, next)
	}
	return err
}

// finish finishes a task that has no lock. If that fails, asynq's own call does it.
func (r *run) finish(ctx context.Context) {
	if r.attempt == nil {
		return
	}
	if f := r.attempt.Finish(); f != nil {
		defer f.Close()
		r.send(ctx, f)
	}
}

// send finishes the task by a call that releases no lock.
func (r *run) send(ctx context.Context, f *asynqredis.Finish) {
	const patience = 3 * time.Second
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if _, err := f.Send(ctx, nil, nil); err != nil {
		r.faults.fault(ctx, r.log(), "a task could not be finished at once", err)
	}
}

// putBackPrefetched puts back, in the background, tasks that were taken in advance and that no worker
// asked for.
func (g *Guard) putBackPrefetched(tasks []*asynqredis.Attempt) {
	g.work.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(g.background), g.locker.Config().TTL)
		defer cancel()
		for _, a := range slices.Backward(tasks) { // the first comes to the head last
			g.putBackAttempt(ctx, a)
		}
	})
}

// putBackAttempt puts the task of an attempt back that has not begun. The task keeps its place in line:
// it joins the line again before its lock is released.
func (g *Guard) putBackAttempt(ctx context.Context, a *asynqredis.Attempt) {
	r := &run{Guard: g, info: Info{ID: a.ID, Queue: a.Queue}, attempt: a}
	back, err := a.PutBack(ctx, g.rdb)
	for err != nil && sleep.For(ctx, jitter(callRetry)) == nil {
		back, err = a.PutBack(ctx, g.rdb)
	}
	if err != nil {
		r.faults.fault(ctx, r.log(), "a task that was taken in advance could not be put back: it will be recovered", err)
		return
	}
	grant, ok := a.Grant()
	if !ok {
		return
	}
	lease, err := g.locker.Adopt(ctx, grant)
	if err != nil {
		return // it has been given back
	}
	r.info.Resource = grant.Resource
	if back {
		r.joinAgain(ctx)
	}
	g.handBack(ctx, lease, r.log())
}

// joinAgain has a task that was put back stand in line before those who came after it.
func (r *run) joinAgain(ctx context.Context) {
	lease, err := r.joinLine(context.WithoutCancel(ctx))
	busy, refused := errors.AsType[*lock.BusyError](err)
	switch {
	case err == nil: // the lock was lost, and is free
		r.handBack(ctx, lease, r.log())
	case !refused:
		r.faults.fault(ctx, r.log(), "a task that was put back has lost its place in line", err)
	case busy.Next != nil: // likewise, and others are in line
		r.call(ctx, busy.Next)
	}
}

// watch reports a handler that goes on for too long after its context has ended;
// the lock is then no longer renewed, so that the resource is not kept for ever.
func (r *run) watch(work context.Context, lease *lock.Lease) (stop func()) {
	done := make(chan struct{})
	ended := context.AfterFunc(work, func() {
		timer := time.NewTimer(r.cfg.Overrun)
		defer timer.Stop()
		select {
		case <-done:
		case <-timer.C:
			r.log().ErrorContext(work, "a handler ignores its ended context; its lock is no longer renewed")
			lease.Abandon()
			r.inTurn(lease).Abandon()
		}
	})
	return func() {
		ended()
		close(done)
	}
}
