package permits

import "fmt"

// A step is one script, or one event.
type step struct {
	words  string
	next   state
	fault  bool // the model rations it
	waits  bool // it needs time to pass
	ends   bool // a handler is done
	broken string
}

// steps returns all steps out of a state.
func (m *Model) steps(s *state) (steps []step) {
	add := func(st step, apply func(s *state)) {
		st.next = *s
		apply(&st.next)
		if st.fault {
			st.next.Faults--
		}
		st.broken = broken(s, &st.next)
		steps = append(steps, st)
	}
	for n := range m.Tasks {
		i := id(n + 1)
		m.taskSteps(s, i, add)
	}
	for n, p := range s.Permits {
		word := fmt.Sprintf("permit %d expires", n+1)
		switch {
		case p.Value == dead, p.Value == held && s.task(p.Of).Stalled, p.Value == reserved && !s.task(p.Of).Waker:
			add(step{words: word, waits: true}, func(s *state) { m.expire(s, n) })
		case p.Value == reserved && s.Faults > 0:
			add(step{words: word + " before its waiter is woken", fault: true}, func(s *state) { m.expire(s, n) })
		}
	}
	if used, _ := s.used(); m.Mistake != NoSweeper && m.first(s) != 0 && m.free(s) >= 0 && (used == 0 || m.Mistake != SweepsOnce) {
		add(step{words: "the sweeper looks", waits: true}, func(s *state) { m.reserveAll(s) })
	}
	for limit := range uint8(maxPermits + 1) {
		if limit != s.Limit && s.Changes > 0 {
			add(step{words: fmt.Sprintf("the limit is %d", limit)}, func(s *state) { s.Changes--; m.change(s, limit) })
		}
	}
	if s.Limit == 0 {
		add(step{words: "the limit is no longer 0", waits: true}, func(s *state) { m.change(s, 1) })
	}
	return steps
}

func (m *Model) taskSteps(s *state, i id, add func(step, func(*state))) {
	t := s.task(i)
	say := func(text string) step { return step{words: fmt.Sprintf("task %d %s", i, text)} }
	fault := func(text string) step { return step{words: fmt.Sprintf("task %d %s", i, text), fault: true} }
	if t.Waker {
		add(say("is woken"), func(s *state) { s.wake(i) })
		if s.Faults > 0 {
			add(fault("is never woken, as the client dies"), func(s *state) { s.task(i).Waker = false })
		}
	}
	switch t.Phase {
	case pending:
		add(say("asks"), func(s *state) { m.ask(s, i, true) })
		if s.Faults > 0 {
			add(fault("asks, and the answer is lost"), func(s *state) { m.ask(s, i, false) })
		}
	case holding, lost:
		st := say("releases")
		st.ends = t.Phase == holding
		add(st, func(s *state) { m.release(s, i) })
		if s.Faults > 0 && t.Phase == holding {
			add(fault("loses its worker"), func(s *state) { s.crash(i) })
			add(fault("stalls"), func(s *state) { s.task(i).Stalled = true })
		}
	default: // it waits, or is done
	}
}

// free returns the number of a permit that the limit allows to grant or reserve, -1 for none.
func (m *Model) free(s *state) int {
	used, reservations := s.used()
	if m.Mistake == ReservedUncounted {
		used -= reservations
	}
	if used >= int(s.Limit) && m.Mistake != LimitUnchecked {
		return -1
	}
	return s.of(free, 0)
}

// ask is acquire_permit.lua. If answered is false, the caller does not hear of a grant, and asks again.
func (m *Model) ask(s *state, i id, answered bool) {
	t := s.task(i)
	if n := s.of(held, i); n >= 0 && !t.Answered && m.Mistake != RepeatTakesAnother {
		if answered {
			t.Phase, t.Permit, t.Answered = holding, uint8(n), true
		}
		return
	}
	if n := s.of(reserved, i); n >= 0 {
		m.hold(s, i, n, answered)
		return
	}
	for n := m.free(s); n >= 0; n = m.free(s) {
		_, reservations := s.used()
		first := m.first(s)
		if first == 0 || first == i || s.Expired && reservations == 0 || m.Mistake == JumpsQueue {
			m.hold(s, i, n, answered)
			return
		}
		m.reserve(s, n, first)
	}
	if t.Ticket == 0 {
		for _, other := range s.Tasks {
			t.Ticket = max(t.Ticket, other.Ticket+1)
		}
	}
	t.Queued = true
	if answered {
		t.Phase = parked
	}
}

// hold grants permit n to a task.
func (m *Model) hold(s *state, i id, n int, answered bool) {
	others, reservations := s.used()
	if others-reservations == 0 || m.Mistake != FencePerPermit {
		s.Last++
	}
	t := s.task(i)
	t.Queued, t.Fence, t.Answered = false, s.Last, answered
	s.Permits[n] = permit{held, i}
	s.Mark, s.Expired, s.Highest = true, false, max(s.Highest, s.Last)
	if answered {
		t.Phase, t.Permit = holding, uint8(n)
	}
}

// reserve reserves permit n for a waiter.
func (m *Model) reserve(s *state, n int, waiter id) {
	s.Permits[n] = permit{reserved, waiter}
	s.Mark, s.Expired = true, true
	s.task(waiter).Waker = true
}

// reserveAll is sweep_permits.lua: reserves all free permits.
func (m *Model) reserveAll(s *state) {
	for n := m.free(s); n >= 0 && m.first(s) != 0; n = m.free(s) {
		m.reserve(s, n, m.first(s))
	}
}

// wake is what a client does for the waiter of a reservation.
func (s *state) wake(i id) {
	t := s.task(i)
	t.Waker = false
	if t.Phase == parked {
		t.Phase = pending
	}
	if s.of(reserved, i) >= 0 { // the client confirms
		t.Queued = false
	}
}

// release is release.lua. A task that has lost its permit asks for another one.
func (m *Model) release(s *state, i id) {
	t := s.task(i)
	n := int(t.Permit)
	own := s.Permits[n] == permit{held, i}
	if own || m.Mistake == ReleaseOfAnothers {
		m.giveUp(s, n)
		if m.Mistake == HandsOffLowered && m.first(s) != 0 {
			m.reserve(s, n, m.first(s))
		} else if f := m.free(s); f >= 0 && m.first(s) != 0 && m.Mistake != NoHandOff {
			m.reserve(s, f, m.first(s))
		}
	}
	then := pending
	if own {
		then = done
	}
	*t = task{Phase: then, Ticket: t.Ticket}
}

// giveUp frees permit n. The mark goes with the last one.
func (m *Model) giveUp(s *state, n int) {
	s.Permits[n] = permit{}
	used, _ := s.used()
	s.Mark = used > 0 && m.Mistake != MarkGoesEarly
}

// expire is the end of a permit's time. The mark lasts as long as the last permit. The trust window
// of a holder ends before its permit.
func (m *Model) expire(s *state, n int) {
	if p := s.Permits[n]; p.Value == held && m.Mistake != TrustsTooLong {
		s.task(p.Of).Phase, s.task(p.Of).Stalled = lost, false
	}
	s.Permits[n] = permit{}
	used, _ := s.used()
	s.Mark = used > 0
}

// crash ends the worker of a task. The task is requeued, and its permit belongs to nobody.
func (s *state) crash(i id) {
	if n := s.of(held, i); n >= 0 {
		s.Permits[n] = permit{Value: dead}
	}
	*s.task(i) = task{Phase: pending, Ticket: s.task(i).Ticket, Waker: s.task(i).Waker}
}

// change sets the limit.
func (m *Model) change(s *state, limit uint8) {
	s.Limit = limit
	for n := int(limit); m.Mistake == LoweringCancels && n < maxPermits; n++ {
		m.giveUp(s, n)
	}
}
