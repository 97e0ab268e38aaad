package policies

import "github.com/sidingq/siding/internal/verify/model/explore"

// A builder collects the steps out of a state.
type builder struct {
	*Model

	s     *State
	steps []Step
}

// A kind says for which properties a step counts.
type kind uint8

const (
	prompt kind = iota // it happens by itself, and at once
	waits              // it needs time to pass
	fault              // the model rations it
)

// Steps implements [explore.Model].
func (m *Model) Steps(steps []Step, s *State) []Step {
	b := builder{m, s, steps}
	for n := range m.Tasks {
		b.task(id(n + 1))
	}
	if s.By == outsider {
		b.may(prompt, "the first holder releases the lock", 0, 0, (*State).handOff)
	}
	switch i := s.For; {
	case i > outsider:
		b.reservedForWorker(i)
	case i != 0 && !s.task(i).Waker && m.Mistake != GoneKeepsLock:
		comes, text := s.task(i).Phase < parked, "the reservation for task %d expires"
		if comes {
			b.may(fault, text+" before it comes", i, 0, func(s *State) { s.losesTurn(i) })
		} else {
			b.may(waits, text, i, 0, func(s *State) { s.For = 0 })
		}
	}
	if s.By == 0 && s.For == 0 && s.first() != 0 {
		b.may(waits, "the sweeper looks", 0, 0, (*State).handOff)
	}
	if s.Ticks > 0 && s.Clock > headStart {
		b.may(waits, "time passes", 0, 0, func(s *State) { s.Ticks--; s.Clock++ })
	}
	return b.steps
}

// may adds a step.
func (b *builder) may(k kind, text string, i, other id, apply func(s *State)) {
	if k == fault && b.s.Faults == 0 {
		return
	}
	st := Step{Move: explore.Words{Format: text, A: int(i), B: int(other)}, Next: *b.s, AtOnce: k == prompt}
	if k == fault {
		st.Next.Faults--
	} else {
		st.Counts = 1
	}
	apply(&st.Next)
	st.Broken = b.broken(b.s, &st.Next)
	b.steps = append(b.steps, st)
}

// call adds a call of a task's worker, and the same whose answer is lost, so that it is sent again.
func (b *builder) call(text string, i, other id, apply func(s *State)) {
	b.may(prompt, text, i, other, apply)
	b.may(fault, text+", and the answer is lost", i, other, func(s *State) {
		before := s.task(i).local
		apply(s)
		s.task(i).local = before
	})
}

func (b *builder) task(i id) {
	s, t := b.s, b.s.task(i)
	switch t.Phase {
	case pending:
		// Tasks that come for the first time come in the order of their names.
		if i == 1 || t.Taken > 0 || s.task(i-1).Taken > 0 || b.Mistake == PositionFirst {
			b.may(prompt, "a worker takes task %d", i, 0, func(s *State) { b.take(s, i) })
		}
	case taken:
		b.call("task %d asks for the lock", i, 0, func(s *State) { b.ask(s, i) })
	case asked:
		b.decide(i)
	case admitted:
		b.leave(i, joining)
	case joining:
		b.call("task %d has its worker ask for the lock", i, 0, func(s *State) { b.join(s, i) })
	case waiting:
		b.waiting(i)
	case meeting:
		if b.replaces(t, i) {
			b.call("task %d deletes task %d, if that is parked", i, t.Equal, func(s *State) { b.replace(s, i) })
		} else {
			b.call("task %d looks whether task %d still waits", i, t.Equal, func(s *State) { b.look(s, i) })
		}
	case met:
		b.call("task %d asks again who waits", i, 0, func(s *State) { b.askAgain(s, i) })
	case clearing:
		b.call("task %d takes task %d out of the wait queue", i, t.Gone, func(s *State) {
			s.leave(t.Gone)
			s.task(i).Phase = then(s.task(i).Equal != 0, meeting, parking)
		})
	case parking:
		b.may(prompt, "task %d parks", i, 0, func(s *State) { b.park(s, i) })
	case dropping, rejecting, tooLate:
		b.leave(i, t.Phase+(dropped-dropping))
	case lateHolder:
		b.may(prompt, "task %d has waited too long, and releases the lock", i, 0, func(s *State) { s.task(i).Phase = late; s.handOff() })
	case running:
		b.may(prompt, "task %d is done, and releases the lock", i, 0, func(s *State) { s.finish(i, done); s.handOff() })
		b.may(fault, "task %d is requeued by a shutdown", i, 0, func(s *State) { b.shutDown(s, i) })
		if b.Mistake == EndsAtWork && b.overdue(s, i, t.Came) {
			b.may(prompt, "task %d has waited too long, and ends", i, 0, func(s *State) { s.finish(i, expired); s.handOff() })
		}
	case dropped:
		b.may(prompt, "task %d ends, as task %d waits", i, t.By, func(s *State) { s.finish(i, coalesced) })
	case rejected:
		b.may(prompt, "task %d is rejected", i, 0, func(s *State) { b.reject(s, i) })
	case late:
		b.may(prompt, "task %d is archived, as it has waited too long", i, 0, func(s *State) { s.finish(i, expired) })
	case parked:
		if b.overdue(s, i, b.came(i, t.Ticket)) {
			b.may(waits, "task %d comes at the end of its wait", i, 0, func(s *State) { s.task(i).Phase = pending })
		}
		b.operator(i)
	case ended:
	}
	if t.Phase.active() {
		b.may(fault, "task %d loses its worker", i, 0, func(s *State) { s.crash(i) })
	}
	if t.Waker {
		switch {
		case !t.Again:
			b.may(prompt, "task %d is woken", i, 0, func(s *State) { b.wake(s, i) })
		case !t.Phase.active(): // a worker is quicker than the second try
			b.may(waits, "task %d is woken a second time", i, 0, func(s *State) { b.wake(s, i) })
		}
		b.may(fault, "task %d is never woken, as the client dies", i, 0, func(s *State) { t := s.task(i); t.Waker, t.Again, t.WakeAt = false, false, 0 })
	}
}

// decide adds what a task does that is in the wait queue.
func (b *builder) decide(i id) {
	p, t := b.policy(i), b.s.task(i)
	switch {
	case p.OnBusy == Reject && !t.Waits:
		b.leave(i, rejected)
	case p.OnBusy == Wait && !t.Waits && !t.Waited && b.Mistake == StaysQueued:
		b.may(prompt, "task %d is to wait", i, 0, func(s *State) { s.task(i).Phase = joining })
	case p.OnBusy == Wait && !t.Waits && !t.Waited && p.MaxWaiting == 0:
		b.leave(i, joining)
	case b.equals(i) || p.MaxWait > 0 || p.MaxWaiting > 0:
		b.call("task %d asks who else waits", i, 0, func(s *State) { b.askOthers(s, i) })
	default:
		b.may(prompt, "task %d parks", i, 0, func(s *State) { b.park(s, i) })
	}
}

func (b *builder) leave(i id, next phase) {
	b.call("task %d leaves the wait queue", i, 0, func(s *State) {
		s.leave(i)
		s.task(i).Phase = next
	})
}

// operator adds what an operator does with a task that is parked. asynq lets nobody delete one that a
// worker has.
func (b *builder) operator(i id) {
	b.may(fault, "an operator deletes task %d", i, 0, func(s *State) { s.remove(i, deleted) })
	b.may(fault, "an operator deletes task %d, whose id is that of another task then", i, 0, func(s *State) { s.remove(i, foreign) })
	b.may(fault, "an operator deletes task %d, and an equal one of its id is enqueued", i, 0, func(s *State) {
		s.remove(i, deleted)
		t := s.task(i)
		*t = task{Queued: t.Queued, Waker: t.Waker, WakeAt: t.WakeAt, Since: t.Since, First: t.First, Taken: t.Taken, Alive: t.Alive}
	})
}

func then(condition bool, yes, no phase) phase {
	if condition {
		return yes
	}
	return no
}
