package engine

import (
	"time"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/taskredis"
)

// sayLapsed logs which tasks have lost their locks as nobody could renew them. It says so once until a heartbeat is
// answered: after a stall of Redis all tasks of a server have.
func (l *loop) sayLapsed(ids []string) {
	const most = 10
	if len(ids) == 0 || l.lapsed {
		return
	}
	l.lapsed = true
	l.logger.Warn("locks could not be renewed in time, and count as lost", "tasks", len(ids), "task_ids", ids[:min(most, len(ids))])
}

// expire ends what must not go on: a handler whose lock may be somebody else's, and the renewal of one that has not
// returned long after its context has ended.
func (l *loop) expire(now time.Time) {
	if now.Before(l.lookAt) && now.Round(0).Before(l.lookAt.Round(0)) { // as in trusts
		return
	}
	l.lookAt = now.Add(time.Hour)
	var lapsed []string
	defer func() { l.sayLapsed(lapsed) }()
	for _, a := range l.attempts {
		if !a.ended.IsZero() {
			continue
		}
		if a.Lock != "" && !a.lost.Load() {
			if a.trusts(now) {
				l.lookBy(*a.trusted.Load())
			} else {
				lapsed = append(lapsed, a.ID)
				l.lose(a)
			}
		}
		switch {
		case now.Before(a.overrunsAt):
			l.lookBy(now.Add(a.overrunsAt.Sub(now))) // not at once, each time, if only the monotonic clock has stood still
		case a.outcome.Kind == taskredis.Ask: // no handler is at work, but an answer under way
			l.lookBy(now.Add(time.Second))
		default:
			l.logger.Error("a handler goes on after its time is over; its lock is not renewed any more, and its slot is free", "queue", a.Queue, "task_id", a.ID, "task_kind", a.message.Type)
			l.running -= a.slots
			l.lose(a)
			l.remove(a)
		}
	}
}

// lookBy has expire look at the attempts at a time, or before.
func (l *loop) lookBy(at time.Time) {
	if at.Before(l.lookAt) {
		l.lookAt = at
	}
}

// markLost has what an attempt returns count for nothing, unless it has returned.
func (a *attempt) markLost() {
	if a.ended.IsZero() {
		a.lost.Store(true)
	}
}

// lose ends the context of a handler whose lock or task is somebody else's, also if that has ended before, by a shutdown or an operator.
// What one task of a batch has lost, all have that have not ended.
func (l *loop) lose(a *attempt) {
	a = a.worker()
	for _, m := range a.members() {
		m.attempt.markLost()
	}
	a.markLost()
	a.trusted.Store(&time.Time{})
	l.cancelContext(a, store.ErrLost)
}

// abort ends the contexts of all handlers.
func (l *loop) abort() {
	for _, a := range l.attempts {
		l.cancelContext(a, errShutdown)
	}
}

// cancelContext ends the context of an attempt, and of its batch. From now on its handler may go on for as long as one whose
// time is over.
func (l *loop) cancelContext(a *attempt, cause error) {
	a.cancelContext(cause)
	by := time.Now().Add(l.cfg.Overrun)
	for _, m := range a.members() {
		l.overrunsBy(m.attempt, by)
	}
	l.overrunsBy(a, by)
}

func (l *loop) overrunsBy(a *attempt, by time.Time) {
	if by.Before(a.overrunsAt) {
		a.overrunsAt = by
		l.lookBy(by)
	}
}

// giveBack gives the tasks back whose handlers go on after abort, and does not wait for these. A task with a lock stays theirs,
// as nobody else may begin it before they return.
func (l *loop) giveBack() {
	for _, a := range l.attempts {
		if a.ended.IsZero() && a.lock() == "" && a.outcome.Kind != taskredis.Ask {
			l.logger.Warn("a handler goes on after the end of its server; its task is put back", "queue", a.Queue, "task_id", a.ID, "task_kind", a.message.Type)
			a.leftOff = true
			l.report(report{attempt: a, outcome: taskredis.Outcome{Name: a.Name, Kind: taskredis.Requeue, Begun: a.Fence != taskredis.WaitOver}})
		}
	}
}
