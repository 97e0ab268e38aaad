package policies

// take is a worker that takes a pending task.
func (m *Model) take(s *State, i id) {
	t := s.task(i)
	t.local = local{Phase: taken, Came: m.came(i, t.Ticket)}
	t.Woken = false
	if t.Ticket > 0 {
		return
	}
	s.Clock++
	t.Came, t.Taken, t.Met, t.By = s.Clock, s.Clock, 0, 0
	if t.First == 0 {
		t.First = s.Clock
	}
	t.Waits, t.Heard, t.Ran, t.Kept, t.Known = false, false, false, false, false
	if t.Queued == 0 {
		t.Since = s.Clock
	}
	for n := range s.Tasks {
		s.Tasks[n].Met &^= i.bit()
	}
}

// ask is acquire.lua.
func (m *Model) ask(s *State, i id) {
	t := s.task(i)
	if m.policy(i).OnBusy == Reject && m.Mistake == RejectsUnnamed && s.For == i && !t.Waits {
		t.Phase = rejecting
		return
	}
	s.claim(i)
	if s.By == i || s.For == i {
		m.grant(s, i)
		return
	}
	if t.Queued == 0 {
		t.Queued, t.Since = m.ticket(i, t.Came), t.Came
	}
	t.At, t.Phase = t.Queued, asked
}

// claim reserves a free lock for who asks, or for the first in the wait queue.
func (s *State) claim(me id) {
	if s.By != 0 || s.For != 0 {
		return
	}
	if first := s.first(); first != 0 && first != me && !s.Mark {
		s.handOff()
		return
	}
	s.For = me
}

// grant gives a task the lock. A task that has waited too long does not run.
func (m *Model) grant(s *State, i id) {
	t := s.task(i)
	waited := t.Waits || t.atWork() && m.Mistake != LateAtWork
	s.By, s.For, s.Mark = i, 0, false
	t.Queued = 0
	if waited && m.overdue(s, i, t.Came) && m.Mistake != LateRuns {
		t.Phase = lateHolder
		return
	}
	t.Phase, t.Ran = running, true
	for n := range s.Tasks {
		other := &s.Tasks[n]
		if n < len(m.Tasks) && m.policy(id(n+1)).OnBusy == m.policy(i).OnBusy && other.Taken > 0 {
			other.Heard = true
		}
	}
}

// park is park.lua. A task that was woken meanwhile is pending at once.
func (m *Model) park(s *State, i id) {
	t := s.task(i)
	t.Ticket, t.Waits = t.At, true
	t.local = local{Phase: then(t.Woken, pending, parked)}
	t.Woken = false
	for n := range m.Tasks {
		m.meets(s, i, id(n+1))
	}
}

// handOff reserves the lock for the first in the wait queue, or frees it.
func (s *State) handOff() {
	s.By, s.For = 0, 0
	i := s.first()
	if i > outsider {
		s.For, s.Mark = i, true
		s.task(i - outsider).Worker = 0
		return
	}
	if i != 0 {
		s.For, s.Mark = i, true
		t := s.task(i)
		t.Waker, t.WakeAt, t.Again = true, t.Queued, false
	}
}

// losesTurn ends the reservation of a task that comes too late. Now others may go first.
func (s *State) losesTurn(i id) {
	s.For = 0
	for n := range s.Tasks {
		s.Tasks[n].Met &^= i.bit()
	}
}

// leave is leave.lua.
func (s *State) leave(i id) {
	s.task(i).Queued = 0
	if s.For == i {
		s.handOff()
	}
}

// wake is what a client does for the waiter of a reservation. A waiter that does not come is dropped. If
// its ticket has changed since, the client wakes it by the new one.
func (m *Model) wake(s *State, i id) {
	t := s.task(i)
	switch {
	case t.Phase.active():
		t.Woken, t.Again = true, true // it comes at once when it is parked
		return
	case t.Phase != ended && t.Ticket == t.WakeAt:
		t.Phase = pending
		if s.For == i {
			t.Queued = 0
		}
	case s.For == i && t.Queued > 0 && t.Queued != t.WakeAt && m.Mistake != TicketForgotten:
		t.WakeAt, t.Again = t.Queued, false
		return
	case s.For == i && (m.Mistake != GoneKeepsLock || t.Phase != ended):
		s.leave(i)
	}
	t.Waker, t.Again, t.WakeAt = false, false, 0
}

// reject ends a task, or has it come again.
func (m *Model) reject(s *State, i id) {
	t := s.task(i)
	if !m.policy(i).UseRetries || t.Retried {
		s.finish(i, refused)
		return
	}
	t.local, t.Ticket, t.Woken, t.Waits, t.Retried = local{}, 0, false, false, true
}

// finish ends a task.
func (s *State) finish(i id, how end) {
	t := s.task(i)
	t.local, t.Ticket, t.Woken, t.End = local{Phase: ended}, 0, false, how
}

// remove deletes a task that is parked. Those that it stood for are nobody's any more.
func (s *State) remove(i id, how end) {
	s.finish(i, how)
	for n := range s.Tasks {
		if s.root(id(n+1)) == i {
			s.Tasks[n].Kept = true
		}
	}
}

// root returns the task that stands for a task in the end; 0 for tasks that stand for each other.
func (s *State) root(i id) id {
	for range MaxTasks {
		t := s.task(i)
		if ends := t.Phase == dropping || t.Phase == dropped || t.End == coalesced || t.End == replaced; !ends {
			return i
		}
		i = t.By
	}
	return 0
}

// crash ends the worker of a task. The recovery moves the task to pending, and hands off its lock. A worker
// in the wait queue is skipped from then on, as nobody listens for it.
func (s *State) crash(i id) {
	t := s.task(i)
	t.local, t.Ticket, t.Woken, t.Waits, t.By, t.Ran, t.Worker = local{}, 0, false, false, 0, false, 0
	if s.For == i.worker() {
		s.For = goneWorker
	}
	if s.By == i {
		s.handOff()
	}
}

// shutDown requeues a task that is at work. It joins the wait queue again, and releases its lock.
func (m *Model) shutDown(s *State, i id) {
	t := s.task(i)
	t.Ticket, t.Ran = m.ticket(i, t.Came), false
	t.Queued, t.Since, t.local = t.Ticket, t.Came, local{}
	s.handOff()
}
