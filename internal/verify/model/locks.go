package model

import "math"

// The scripts on locks, as the Lua files have them. Each is one atomic step.

// set changes what a lock holds. An earlier reservation of a waker then no longer stands.
func (m *Model) set(s *State, r uint8, value Value, by uint8, whom ID) {
	l := &s.Locks[r]
	l.Value, l.By, l.For = value, by, whom
	for i := range s.Wakers {
		if c := &s.Wakers[i]; c.Task != 0 && m.Resource(c.Task) == r {
			c.Standing = false
		}
	}
}

// reserve reserves a lock for the first waiter, which worker w then wakes. The result is false if
// nobody waits but me.
func (m *Model) reserve(s *State, r uint8, me ID, w uint8) bool {
	first := s.first(r)
	if first == 0 || first == me {
		return false
	}
	waker := Waker{Task: first, Ticket: s.task(first).Position, Worker: w, Stage: Waking, Standing: true}
	m.set(s, r, Reserved, 0, first)
	s.Locks[r].Mark = m.Mistake != ExpiryForgotten
	if m.Mistake == LeavesWhenReserved {
		m.leaveQueue(s, first)
	}
	for i := range s.Wakers {
		if s.Wakers[i].Task == 0 {
			s.Wakers[i] = waker
			return true
		}
	}
	panic("model: too many wakers")
}

// first returns the first waiter that releases do not skip, 0 for none.
func (s *State) first(r uint8) ID {
	for _, id := range s.Locks[r].Waiters {
		if id == 0 || !s.task(id).Skipped {
			return id
		}
	}
	return 0
}

// resume ends the skipping of waiters.
func (s *State) resume(r uint8) (some bool) {
	for _, id := range s.Locks[r].Waiters {
		if id != 0 {
			some = some || s.task(id).Skipped
			s.task(id).Skipped = false
		}
	}
	return some
}

// handOff reserves a lock for the first waiter, or frees the lock.
func (m *Model) handOff(s *State, r, w uint8) {
	if !m.reserve(s, r, 0, w) {
		m.set(s, r, Free, 0, 0)
	}
}

func (m *Model) leaveQueue(s *State, id ID) {
	l := &s.Locks[m.Resource(id)]
	remove(l.Waiters[:], id)
	s.task(id).Position, s.task(id).Skipped = 0, false
	l.Listed = l.Listed && l.Waiters[0] != 0
}

// acquire is acquire.lua for attempt i.
func (m *Model) acquire(s *State, i int) Outcome {
	a := &s.Attempts[i]
	if m.asks(s, i) {
		a.Phase, a.Fence = Holding, s.Locks[m.Resource(a.Task)].Last
		return Granted
	}
	a.Phase, a.Ticket, a.Prefetched = Busy, s.task(a.Task).Position, false // it parks, prefetched or not
	return Joined
}

// rejoin is acquire.lua for attempt i, whose task was requeued. The attempt holds the lock unless it
// has lost the lock, so that its task joins the wait queue.
func (m *Model) rejoin(s *State, i int) Outcome {
	a := &s.Attempts[i]
	a.Rejoins = false
	if m.asks(s, i) {
		a.Phase = Regained
		return Granted
	}
	return Joined
}

// asks takes the lock for attempt i, or has its task join the wait queue.
func (m *Model) asks(s *State, i int) (granted bool) {
	a := &s.Attempts[i]
	id, r := a.Task, m.Resource(a.Task)
	l, t := &s.Locks[r], s.task(id)
	s.resume(r)
	if l.Value == Reserved && l.For == id || l.Value == Free && (l.Mark || !m.reserve(s, r, id, a.Worker)) {
		if m.Mistake != HolderStaysQueued {
			m.leaveQueue(s, id)
		}
		m.set(s, r, Held, uint8(i+1), id)
		l.Mark = false
		l.Last++
		return true
	}
	if t.Position == 0 {
		t.Position = a.Came
		s.insert(l.Waiters[:], id)
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
			tickets = append(tickets, &t.Ticket, &t.Position)
		}
	}
	for i := range s.Attempts {
		if a := &s.Attempts[i]; a.Task != 0 && m.Resource(a.Task) == r {
			tickets = append(tickets, &a.Came, &a.Ticket)
		}
	}
	for i := range s.Wakers {
		if c := &s.Wakers[i]; c.Task != 0 && m.Resource(c.Task) == r {
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
	if l := &s.Locks[r]; l.Value != Held || !l.heldBy(uint8(i)) && m.Mistake != ReleaseOfAnothers {
		return LostLease
	}
	m.handOff(s, r, a.Worker)
	return OK
}

// leave is leave.lua by a waker whose waiter cannot come.
func (m *Model) leave(s *State, c Waker) {
	if c.Standing {
		m.leaveQueue(s, c.Task)
		m.handOff(s, m.Resource(c.Task), c.Worker)
	}
}

// skip is leave.lua by a waker whose waiter's queue is paused.
func (m *Model) skip(s *State, c Waker) {
	if c.Standing {
		for _, id := range s.Locks[m.Resource(c.Task)].Waiters {
			if id != 0 {
				s.task(id).Skipped = true
			}
		}
		m.handOff(s, m.Resource(c.Task), c.Worker)
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

// restore is missing.lua for a task that the sweeper has seen in no wait queue.
func (m *Model) restore(s *State) {
	t, l := s.task(s.Loss.Task), &s.Locks[m.Resource(s.Loss.Task)]
	if t.Position == 0 {
		t.Position = s.Loss.Ticket
		s.insert(l.Waiters[:], s.Loss.Task)
	}
	l.Listed = true
	s.Loss = Loss{}
}

// confirm is confirm.lua by a waker whose waiter is pending.
func (m *Model) confirm(s *State, c Waker) {
	if c.Standing || m.Mistake == ConfirmUnchecked {
		m.leaveQueue(s, c.Task)
	}
}
