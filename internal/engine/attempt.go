package engine

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/taskredis"
)

// An attempt is a task that this server has taken. It is running until its handler has returned, then ended, until
// a step has settled it. The fields from loss on are its goroutine's until it reports, and all others are the loop's.
type attempt struct {
	taskredis.Taken

	sender *sender // that has taken it, or heard that it has its lock

	ctx     context.Context //nolint:containedctx // the handler's
	cancel  context.CancelCauseFunc
	granted chan *Refusal // the answer to an attempt that has asked for its lock: nil if it has it; closed if it is over
	batch   *Batch        // that it has begun; nil for none
	member  *Member       // of the batch of another one, under whose lock it runs; nil if it is none
	slots   int           // that it takes: one, but for a member

	message    *Message
	step       int64 // the number of the step that took it, or gave it the lock it asked for
	started    time.Time
	endsBy     time.Time                 // when the handler's context ends by itself; maybe before it starts
	overrunsAt time.Time                 // when it is given up if it has not returned
	trusted    atomic.Pointer[time.Time] // until then nobody else can have the lock; anybody may read it
	lost       atomic.Bool               // the lock or the task is somebody else's: its outcome counts for nothing; anybody may read it
	leftOff    bool                      // its task was put back while its handler goes on, whose fields are not to be read
	ended      time.Time                 // when the handler returned; zero before
	outcome    taskredis.Outcome         // once it has ended, or asks for a lock
	settled    time.Time                 // when that was settled, if Redis has forgotten it since

	loss    *LostError // what the handler said of the loss of its lock, if it did
	refused bool       // it was not to wait for its lock, so its handler has not begun
	failure error      // of the task's own, if the outcome is one
	task    *Task      // once its handler was called, and the error of that
	err     error
	// handlerCtx is the context of the handler, made by BaseContext: the user's functions are asked with it what a failure means.
	handlerCtx context.Context //nolint:containedctx // the attempt's
}

// Message is a task as asynq encodes it.
type Message = taskredis.Message

// AsynqTask returns a task as asynq's functions take it.
func AsynqTask(m *Message) *asynq.Task { return asynq.NewTaskWithHeaders(m.Type, m.Payload, m.Headers) }

// take begins an attempt that a sender has taken.
func (l *loop) take(ctx context.Context, by *sender, t *taskredis.Taken, step int64, sent, now time.Time) {
	a := &attempt{Taken: *t, sender: by, step: step, started: now}
	l.trust(a, sent)
	l.attempts[a.Attempt] = a
	m, err := taskredis.DecodeMessage(a.Encoded)
	first := l.attempts[a.First.Attempt]
	joins := first != nil && first.outcome.Kind == taskredis.More
	if joins {
		a.member, a.Fence = first.batch.add(a), first.Fence
	} else {
		a.slots = 1
	}
	switch {
	case l.stopping,
		a.slots > 0 && l.running >= l.cfg.Concurrency, // the answer is late, and others have its slots
		a.Lock != "" && !a.trusts(now),                // so late that others may have the lock
		a.First.Attempt != "" && (!joins || first.lost.Load()):
		a.outcome = taskredis.Outcome{Name: a.Name, Kind: taskredis.Requeue}
		a.outcome.Lock = a.lock()
	case err != nil:
		l.logger.ErrorContext(ctx, "a task cannot be read; it is archived as it is", "queue", a.Queue, "task_id", a.ID, "error", err)
		a.outcome = taskredis.Outcome{Name: a.Name, Kind: taskredis.Archive, Message: a.Encoded}
	}
	if a.outcome.Kind != "" {
		a.ended = now
		a.member.leave()
		l.toSend(a)
		return
	}
	a.message, a.endsBy, a.overrunsAt = m, m.EndsBy(now), now.Add(l.cfg.Overrun)
	if a.Fence == taskredis.DeadlineOver {
		a.endsBy = now
	}
	if a.endsBy.After(now) {
		a.overrunsAt = a.endsBy.Add(l.cfg.Overrun)
	}
	if a.member != nil && a.overrunsAt.Before(first.overrunsAt) {
		first.overrunsAt = a.overrunsAt // a batch is given up when any of its tasks is to be
	}
	l.lookBy(a.overrunsAt)
	a.ctx, a.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	a.granted = make(chan *Refusal, 1)
	if a.member == nil {
		l.running += a.slots
		l.atWork.Add(1)
		l.beatIfLate(a)
	}
	l.goroutines.run(func() { l.runAttempt(a) }) //nolint:contextcheck // the attempt has a context of its own
}

// beatIfLate has a heartbeat come at once if the answer with an attempt's lock took long, as the lock may be about to expire.
func (l *loop) beatIfLate(a *attempt) {
	if now := time.Now(); a.Lock != "" && a.trusted.Load().Before(now.Add(l.cfg.RenewEvery)) {
		l.scopes[l.scopeOf(a.Queue)].beatNext = now
	}
}

// trust says that the lock of an attempt, if it has one, was its after sent: so it is for some time more.
func (l *loop) trust(a *attempt, sent time.Time) {
	until := sent.Add(l.cfg.TTL - l.cfg.SafetyMargin)
	a.trusted.Store(&until)
	l.lookBy(until)
}

// trusts reports whether nobody else can have the lock of an attempt. The wall clock counts, too, as the monotonic one may stand
// still while a machine is suspended.
func (a *attempt) trusts(now time.Time) bool {
	until := *a.trusted.Load()
	return now.Before(until) && now.Round(0).Before(until.Round(0))
}

// Trusted returns until when nobody else can have the lock of an attempt, or of its batch; the zero time once it is lost. Renewals
// move it.
func (t *Task) Trusted() time.Time { return *t.attempt.worker().trusted.Load() }

// result takes what a step has made of an outcome.
func (l *loop) result(by *sender, a *attempt, result taskredis.Result, reply taskredis.Reply, step int64, sent time.Time) {
	if a.outcome.Kind == taskredis.More {
		return // those that have begun are taken first
	}
	switch result {
	case taskredis.Granted:
		a.Lock, a.Fence, a.Fences, a.sender, a.step = reply.Lock, reply.Fence, reply.Fences, by, step
		l.trust(a, sent)
		a.outcome = taskredis.Outcome{}
		l.beatIfLate(a)
		if !a.trusts(time.Now()) { // the answer took too long
			l.lose(a)
		}
		a.granted <- nil
	case taskredis.Rejected, taskredis.Coalesced:
		a.outcome = taskredis.Outcome{}
		a.granted <- &Refusal{Holder: reply.Holder, Waiting: reply.Waiting, Coalesced: reply.Other}
	case taskredis.Settled:
		l.tellSettled(a)
		if !a.leftOff && a.failure != nil && l.cfg.Failed != nil {
			task, outcome, failure := l.taskOf(a), a.outcome.Kind, a.failure
			l.told.tell(a.ctx, l.logger, "Failed", func() { l.cfg.Failed(a.ctx, task, outcome, failure) })
		}
		l.forget(a)
	case taskredis.Parked:
		l.abandon(a)
	case taskredis.Lost:
		switch {
		case a.outcome.Kind == taskredis.Ask:
			l.abandon(a)
		case l.attempts[a.Attempt] != a: // it is sent again after a failover, and was settled before that, when it had its lock
			a.outcome = withoutLock(a.outcome)
			l.toSend(a)
		default:
			l.lostMeanwhile(a)
		}
	case taskredis.Stale:
		if l.attempts[a.Attempt] == a {
			l.sayStale(a)
			a.lost.Store(true)
		}
		l.abandon(a)
	default:
		l.logger.Error("Redis could not settle a task; it runs again once its lease is over", "queue", a.Queue, "task_id", a.ID, "outcome", a.outcome.Kind, "error", string(result))
		l.abandon(a)
	}
}

// lostMeanwhile has an attempt say once more what becomes of its task, as it ended with a lock that it did not have any more.
func (l *loop) lostMeanwhile(a *attempt) {
	if a.message == nil || a.loss != nil || a.lost.Load() && a.outcome.Kind == taskredis.Snooze { // it has not run, or its outcome says so
		a.outcome = withoutLock(a.outcome)
		l.toSend(a)
		return
	}
	a.lost.Store(true)
	l.running += a.slots // until its new outcome is reported
	a.ended, a.overrunsAt = time.Time{}, time.Now().Add(l.cfg.Overrun)
	l.lookBy(a.overrunsAt)
	go func() { // which may ask the user's functions
		l.send(report{attempt: a, outcome: withoutLock(l.holding(a, l.lostOutcome(a, a.loss)))})
	}()
}

// withoutLock returns an outcome that counts although the attempt has lost its lock: the step does not ask whether it has it.
func withoutLock(o taskredis.Outcome) taskredis.Outcome {
	o.Lock = ""
	return o
}

// tellSettled tells of an attempt that has ended.
func (l *loop) tellSettled(a *attempt) {
	if l.cfg.Settled == nil || a.leftOff || a.task == nil {
		return
	}
	loss := (*LostError)(nil)
	lost := a.lost.Load() || errors.As(a.err, &loss)
	task, err := a.task, a.err
	if a.outcome.Kind == taskredis.Requeue {
		err = OfShutdown(a.ctx, err)
	}
	l.told.tell(a.ctx, l.logger, "Settled", func() { l.cfg.Settled(task, err, lost) })
}

// abandon gives an attempt up. If Redis still has it, its task comes again once its lease is over. One that has asked for its lock
// does not begin.
func (l *loop) abandon(a *attempt) {
	if a.outcome.Kind == taskredis.More {
		l.batchComplete(a)
		return
	}
	if a.outcome.Kind == taskredis.Ask && l.attempts[a.Attempt] == a {
		l.running -= a.slots
		close(a.granted)
	}
	if !a.ended.IsZero() {
		l.tellSettled(a)
	}
	l.forget(a)
}

func (l *loop) forget(a *attempt) {
	l.remove(a)
	if a.cancel != nil && !a.ended.IsZero() {
		a.cancel(nil)
	}
}

func (l *loop) remove(a *attempt) {
	if l.attempts[a.Attempt] != a {
		return
	}
	delete(l.attempts, a.Attempt)
	if a.member != nil {
		a.member.batch.unsettled.done()
	}
}

// sayStale logs that the outcome of an attempt does not count. After a stall of the server that holds for all of its tasks: the
// first is a warning, and those that follow within some seconds are for those who debug.
func (l *loop) sayStale(a *attempt) {
	const quiet = 5 * time.Second
	attrs, now := []any{"queue", a.Queue, "task_id", a.ID, "outcome", a.outcome.Kind}, time.Now()
	if now.Sub(l.staleSaid) < quiet {
		l.logger.Debug("nor does the outcome of this task count", attrs...)
		return
	}
	l.staleSaid = now
	l.logger.Warn("a task is somebody else's by now, and its outcome does not count", attrs...)
}
