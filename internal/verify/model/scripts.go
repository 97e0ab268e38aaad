package model

import "math"

// The scripts, each one atomic step, as the Lua files have them.

// An Outcome is what a script answered.
type Outcome string

// What scripts answer. Called to PausedQueue are those of promote.
const (
	Granted     Outcome = "granted"
	Joined      Outcome = "refused"
	Called      Outcome = "called"
	Noted       Outcome = "noted"
	PausedQueue Outcome = "paused"
	Gone        Outcome = "gone"
	Superseded  Outcome = "superseded"
	LostLease   Outcome = "lost"
	BroughtBack Outcome = "those set aside are back"
	OK          Outcome = ""
)

// set changes what a lock holds. Calls for an earlier reservation then know one
// that no longer stands.
func (m *Model) set(s *State, r uint8, value Value, by uint8, whom ID) {
	l := &s.Locks[r]
	l.Value, l.By, l.For = value, by, whom
	for i := range s.Calls {
		if c := &s.Calls[i]; c.Task != 0 && m.Resource(c.Task) == r {
			c.Standing = false
		}
	}
}

// reserve keeps a lock for the first in line, whom worker w is to call. It
// returns false when there is nobody but me.
func (m *Model) reserve(s *State, r uint8, me ID, w uint8) bool {
	first := s.first(r)
	if first == 0 || first == me {
		return false
	}
	call := Call{Task: first, Ticket: s.task(first).InLine, Worker: w, Turn: Calling, Standing: true}
	m.set(s, r, Reserved, 0, first)
	s.Locks[r].Mark = m.Mistake != LapseForgotten
	if m.Mistake == LeavesWhenReserved {
		m.leaveLine(s, first)
	}
	for i := range s.Calls {
		if s.Calls[i].Task == 0 {
			s.Calls[i] = call
			return true
		}
	}
	panic("model: too many calls")
}

// first returns who is first in line and was not set aside, 0 for nobody.
func (s *State) first(r uint8) ID {
	for _, id := range s.Locks[r].Line {
		if id == 0 || !s.task(id).Aside {
			return id
		}
	}
	return 0
}

// resume brings back those who were set aside.
func (s *State) resume(r uint8) (some bool) {
	for _, id := range s.Locks[r].Line {
		if id != 0 {
			some = some || s.task(id).Aside
			s.task(id).Aside = false
		}
	}
	return some
}

// passOn keeps a lock for the first in line, or frees it.
func (m *Model) passOn(s *State, r, w uint8) {
	if !m.reserve(s, r, 0, w) {
		m.set(s, r, Free, 0, 0)
	}
}

func (m *Model) leaveLine(s *State, id ID) {
	l := &s.Locks[m.Resource(id)]
	remove(l.Line[:], id)
	s.task(id).InLine, s.task(id).Aside = 0, false
	l.Listed = l.Listed && l.Line[0] != 0
}

// acquire is acquire.lua for attempt i, which asks for its lock.
func (m *Model) acquire(s *State, i int) Outcome {
	a := &s.Attempts[i]
	if m.asks(s, i) {
		a.Phase, a.Fence = Holding, s.Locks[m.Resource(a.Task)].Last
		return Granted
	}
	a.Phase, a.Ticket, a.Ahead = Refused, s.task(a.Task).InLine, false // it parks, claimed or not
	return Joined
}

// rejoin is acquire.lua for attempt i, whose task was put back. It holds the lock, if it has not
// lost it, and so has its task stand in line.
func (m *Model) rejoin(s *State, i int) Outcome {
	a := &s.Attempts[i]
	a.Back = false
	if m.asks(s, i) {
		a.Phase = Regained
		return Granted
	}
	return Joined
}

// asks takes the lock for attempt i, or has its task join the line.
func (m *Model) asks(s *State, i int) (granted bool) {
	a := &s.Attempts[i]
	id, r := a.Task, m.Resource(a.Task)
	l, t := &s.Locks[r], s.task(id)
	s.resume(r)
	if l.Value == Reserved && l.For == id || l.Value == Free && (l.Mark || !m.reserve(s, r, id, a.Worker)) {
		if m.Mistake != HolderStaysInLine {
			m.leaveLine(s, id)
		}
		m.set(s, r, Held, uint8(i+1), id)
		l.Mark = false
		l.Last++
		return true
	}
	if t.InLine == 0 {
		t.InLine = a.Came
		s.insert(l.Line[:], id)
	}
	return false
}

// newTicket returns a ticket that is newer than all others of resource r.
func (m *Model) newTicket(s *State, r uint8) uint8 {
	newest := uint8(0)
	for _, ticket := range m.tickets(nil, s, r) {
		newest = max(newest, *ticket)
	}
	if newest == math.MaxUint8 {
		panic("model: too many tickets")
	}
	return newest + 1
}

// tickets appends those of resource r.
func (m *Model) tickets(tickets []*uint8, s *State, r uint8) []*uint8 {
	for n := range m.Resources {
		if t := &s.Tasks[n]; m.Resources[n] == r {
			tickets = append(tickets, &t.Ticket, &t.InLine)
		}
	}
	for i := range s.Attempts {
		if a := &s.Attempts[i]; a.Task != 0 && m.Resource(a.Task) == r {
			tickets = append(tickets, &a.Came, &a.Ticket)
		}
	}
	for i := range s.Calls {
		if c := &s.Calls[i]; c.Task != 0 && m.Resource(c.Task) == r {
			tickets = append(tickets, &c.Ticket)
		}
	}
	if s.Loss.Task != 0 && m.Resource(s.Loss.Task) == r {
		tickets = append(tickets, &s.Loss.Ticket)
	}
	return tickets
}

// release is release.lua for attempt i.
func (m *Model) release(s *State, i int) Outcome {
	a := &s.Attempts[i]
	r := m.Resource(a.Task)
	if l := &s.Locks[r]; l.Value != Held || l.By != uint8(i+1) && m.Mistake != ReleaseOfAnothers {
		return LostLease
	}
	m.passOn(s, r, a.Worker)
	return OK
}

// leave is leave.lua for call c, whose waiter cannot come.
func (m *Model) leave(s *State, c Call) {
	if c.Standing {
		m.leaveLine(s, c.Task)
		m.passOn(s, m.Resource(c.Task), c.Worker)
	}
}

// setAside is leave.lua for call c, whose waiter's queue is paused.
func (m *Model) setAside(s *State, c Call) {
	if c.Standing {
		for _, id := range s.Locks[m.Resource(c.Task)].Line {
			if id != 0 {
				s.task(id).Aside = true
			}
		}
		m.passOn(s, m.Resource(c.Task), c.Worker)
	}
}

// sweep is sweep.lua for the lock of resource r.
func (m *Model) sweep(s *State, r uint8, resumed bool) Outcome {
	l, outcome := &s.Locks[r], OK
	if resumed && s.resume(r) {
		outcome = BroughtBack
	}
	if l.Value == Free && (!l.Mark || m.Mistake != SweeperHeedsMark) {
		m.reserve(s, r, 0, elected)
	}
	return outcome
}

// restore is places.lua for a task that the sweeper has seen in no line.
func (m *Model) restore(s *State) {
	t, l := s.task(s.Loss.Task), &s.Locks[m.Resource(s.Loss.Task)]
	if t.InLine == 0 {
		t.InLine = s.Loss.Ticket
		s.insert(l.Line[:], s.Loss.Task)
	}
	l.Listed = true
	s.Loss = Loss{}
}

// called is called.lua for call c, whose waiter is on its way.
func (m *Model) called(s *State, c Call) {
	if c.Standing || m.Mistake == CalledUnchecked {
		m.leaveLine(s, c.Task)
	}
}

// promote is promote.lua.
func (m *Model) promote(s *State, id ID, ticket uint8) Outcome {
	t := s.task(id)
	switch outcome := m.promotion(s, id, ticket); outcome {
	case Noted:
		t.Called = true
		return outcome
	case Called:
		remove(s.Queue[:], id)
		prepend(s.Queue[:], id)
		t.In = Pending
		return outcome
	default:
		return outcome
	}
}

// promotion is what promote looks at before it moves anything.
func (m *Model) promotion(s *State, id ID, ticket uint8) Outcome {
	t := s.task(id)
	switch {
	case t.In == Done, t.In == Deleted:
		return Gone
	case t.In != Active && t.Ticket != ticket && m.Mistake != PromoteUnchecked:
		return Gone
	case s.Paused:
		return PausedQueue
	case t.In == Active:
		return Noted
	case t.In == Archived:
		return Gone
	}
	return Called
}

// dequeue is dequeue.lua: worker w takes the next task. It returns the attempt.
func (m *Model) dequeue(s *State, w uint8) int {
	id := s.Queue[0]
	remove(s.Queue[:], id)
	t := s.task(id)
	came := t.Ticket
	if came == 0 || m.Mistake == LateComesLast {
		came = m.newTicket(s, m.Resource(id))
	}
	t.In, t.Ticket, t.Called = Active, 0, false
	s.renamed(id)
	for i := range s.Attempts {
		if s.Attempts[i].Task == 0 {
			s.Attempts[i] = Attempt{Task: id, Worker: w, Phase: Taken, Latest: true, Came: came}
			return i
		}
	}
	panic("model: too many attempts")
}

// acknowledges reports whether the attempt may still move its task.
func (m *Model) acknowledges(s *State, a *Attempt) bool {
	return s.task(a.Task).In == Active && (a.Latest || m.Mistake == AckUnchecked)
}

// park is park.lua under a ticket, 0 for a place in no line.
func (m *Model) park(s *State, a *Attempt, ticket uint8) Outcome {
	if !m.acknowledges(s, a) {
		return Superseded
	}
	t, l := s.task(a.Task), &s.Locks[m.Resource(a.Task)]
	t.Ticket = ticket
	l.Listed = l.Listed || ticket != 0 && l.Line[0] != 0
	if ticket != 0 && t.Called && m.Mistake != NotedAndForgotten {
		t.In = Pending
		prepend(s.Queue[:], a.Task)
		return Called
	}
	t.In = Parked
	return OK
}

// requeue is requeue.lua: the server of attempt a shuts down.
func (m *Model) requeue(s *State, a *Attempt) {
	t := s.task(a.Task)
	a.Off, a.Back = true, m.Mistake != PutBackStaysOut
	t.In = Pending
	if m.Mistake != PutBackComesLast {
		t.Ticket = a.Came
	}
	prepend(s.Queue[:], a.Task)
}

// finish is finish.lua for attempt i, whose handler has succeeded. It releases the lock, if that has
// not been done. The task that it takes asks for its lock in a step of its own.
func (m *Model) finish(s *State, i int) Outcome {
	a := s.Attempts[i]
	ends := s.task(a.Task).In == Active && (a.Latest || m.Mistake == FinishUnchecked)
	if a.Phase == Wrote && m.release(s, i) == LostLease && ends && m.Mistake != FinishAfterLoss {
		s.Attempts[i].Phase = Lost
		return LostLease
	}
	s.forget(i)
	if !ends {
		return Superseded
	}
	s.task(a.Task).In = Done
	s.erase(a.Task)
	if s.Queue[0] != 0 && !s.Paused && s.Ahead > 0 {
		s.Ahead--
		s.Attempts[m.dequeue(s, a.Worker)].Ahead = true
	}
	return OK
}

// putBack is put_back.lua for attempt i, whose task was taken in advance, and what the client does
// with the answer.
func (m *Model) putBack(s *State, i int) Outcome {
	a := &s.Attempts[i]
	t, outcome := s.task(a.Task), Superseded
	a.Ahead, a.Off = false, true
	if t.In == Active && (a.Latest || m.Mistake == AheadUnchecked) {
		outcome, t.In = OK, Pending
		if m.Mistake != AheadComesLast {
			t.Ticket = a.Came
		}
		prepend(s.Queue[:], a.Task)
	}
	if a.Phase != Holding || a.Deprived || m.Mistake == AheadKeepsLock {
		s.forget(i)
		return outcome
	}
	a.Phase, a.Back = Unclaimed, outcome == OK && m.Mistake != AheadStaysOut
	return outcome
}

// acknowledge moves the task of a to where it ends, or waits for its retry.
func (m *Model) acknowledge(s *State, a *Attempt, to Place) Outcome {
	if !m.acknowledges(s, a) {
		return Superseded
	}
	s.task(a.Task).In = to
	if to == Done {
		s.erase(a.Task)
	}
	return OK
}

// erase is the end of a task's hash, and of all marks in it.
func (s *State) erase(id ID) {
	t := s.task(id)
	t.Ticket, t.Called = 0, false
	s.renamed(id)
}

// renamed says that no attempt of before is named in the task's hash any more.
func (s *State) renamed(id ID) {
	for i := range s.Attempts {
		if a := &s.Attempts[i]; a.Task == id {
			a.Latest = false
		}
	}
	if s.Recovery.Task == id {
		s.Recovery.Same = false
	}
}
