package protocol

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
	first := s.Locks[r].Line[0]
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
	panic("protocol: too many calls")
}

// passOn keeps a lock for the first in line, or frees it.
func (m *Model) passOn(s *State, r, w uint8) {
	if !m.reserve(s, r, 0, w) {
		m.set(s, r, Free, 0, 0)
	}
}

func (m *Model) leaveLine(s *State, id ID) {
	remove(s.Locks[m.Resource(id)].Line[:], id)
	s.task(id).InLine = 0
}

// acquire is acquire.lua for attempt i.
func (m *Model) acquire(s *State, i int) Outcome {
	a := &s.Attempts[i]
	id, r := a.Task, m.Resource(a.Task)
	l, t := &s.Locks[r], s.task(id)
	if l.Value == Reserved && l.For == id || l.Value == Free && (l.Mark || !m.reserve(s, r, id, a.Worker)) {
		if m.Mistake != HolderStaysInLine {
			m.leaveLine(s, id)
		}
		m.set(s, r, Held, uint8(i+1), id)
		l.Mark = false
		l.Last++
		a.Phase, a.Fence = Holding, l.Last
		return Granted
	}
	if t.InLine == 0 {
		t.InLine = s.newTicket(id)
		appendTo(l.Line[:], id)
	}
	a.Phase, a.Ticket = Refused, t.InLine
	return Joined
}

// newTicket returns a name that no ticket of the task has.
func (s *State) newTicket(id ID) uint8 {
	t := s.task(id)
	n := max(t.Ticket, t.Called, t.InLine)
	for i := range s.Attempts {
		if a := &s.Attempts[i]; a.Task == id {
			n = max(n, a.Ticket)
		}
	}
	for i := range s.Calls {
		if c := &s.Calls[i]; c.Task == id {
			n = max(n, c.Ticket)
		}
	}
	return n + 1
}

// release is release.lua for attempt i.
func (m *Model) release(s *State, i int) Outcome {
	a := &s.Attempts[i]
	r := m.Resource(a.Task)
	if l := &s.Locks[r]; m.Mistake != ReleaseOfAnothers && (l.Value != Held || l.By != uint8(i+1)) {
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
		t.Called = max(t.Called, ticket) // a call of an older reservation may come late
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

// dequeue is dequeue.lua: worker w takes the next task.
func (m *Model) dequeue(s *State, w uint8) ID {
	id := s.Queue[0]
	remove(s.Queue[:], id)
	t := s.task(id)
	t.In, t.Ticket, t.Called = Active, 0, 0
	s.renamed(id)
	for i := range s.Attempts {
		if s.Attempts[i].Task == 0 {
			s.Attempts[i] = Attempt{Task: id, Worker: w, Phase: Taken, Latest: true}
			return id
		}
	}
	panic("protocol: too many attempts")
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
	t := s.task(a.Task)
	t.Ticket = ticket
	if ticket != 0 && t.Called == ticket && m.Mistake != NotedAndForgotten {
		t.In = Pending
		prepend(s.Queue[:], a.Task)
		return Called
	}
	t.In = Parked
	return OK
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
	t.Ticket, t.Called = 0, 0
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
