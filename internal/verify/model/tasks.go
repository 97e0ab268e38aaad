package model

// The scripts on tasks, as the Lua files have them. Each is one atomic step.

// wake is wake.lua.
func (m *Model) wake(s *State, id ID, ticket uint8) Outcome {
	t, outcome := s.task(id), m.mayWake(s, id, ticket)
	if outcome == Marked {
		t.Woken = true
	}
	if outcome == Woken {
		remove(s.Queue[:], id)
		prepend(s.Queue[:], id)
		t.In = Pending
	}
	return outcome
}

// mayWake is the part of wake.lua before it moves anything.
func (m *Model) mayWake(s *State, id ID, ticket uint8) Outcome {
	t := s.task(id)
	switch {
	case t.In == Done, t.In == Deleted:
		return Gone
	case t.In != Active && t.Ticket != ticket && m.Mistake != WakeUnchecked:
		return Gone
	case s.Paused:
		return PausedQueue
	case t.In == Active:
		return Marked
	case t.In == Archived:
		return Gone
	}
	return Woken
}

// dequeue is dequeue.lua: worker w takes the next task. The result is the attempt.
func (m *Model) dequeue(s *State, w uint8) int {
	id := s.Queue[0]
	remove(s.Queue[:], id)
	t := s.task(id)
	came := t.Ticket
	if came == 0 || m.Mistake == LateComesLast {
		came = m.newTicket(s, m.Resource(id))
	}
	t.In, t.Ticket, t.Woken = Active, 0, false
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

// park is park.lua. An attempt that has lost its lock has no ticket: its task parks without a
// position.
func (m *Model) park(s *State, a *Attempt) Outcome {
	if !m.acknowledges(s, a) {
		return Superseded
	}
	t, l := s.task(a.Task), &s.Locks[m.Resource(a.Task)]
	t.Ticket = a.Ticket
	l.Listed = l.Listed || t.Ticket != 0 && l.Waiters[0] != 0
	if t.Ticket != 0 && t.Woken && m.Mistake != MarkedAndForgotten {
		t.In = Pending
		prepend(s.Queue[:], a.Task)
		return Woken
	}
	t.In = Parked
	return OK
}

// requeue is asynq's requeue behind keep_ticket.lua: the server of attempt a shuts down.
func (m *Model) requeue(s *State, a *Attempt) {
	t := s.task(a.Task)
	a.Off, a.Rejoins = true, m.Mistake != RequeuedStaysOut
	t.In = Pending
	if m.Mistake != RequeuedComesLast {
		t.Ticket = a.Came
	}
	prepend(s.Queue[:], a.Task)
}

// finish is finish.lua for attempt i, whose handler has succeeded. finish releases the lock, if no
// release came before. The next task, which it prefetches, asks for its lock in another step.
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
	if s.Queue[0] != 0 && !s.Paused && s.Prefetch > 0 {
		s.Prefetch--
		s.Attempts[m.dequeue(s, a.Worker)].Prefetched = true
	}
	return OK
}

// requeuePrefetched is requeue.lua for attempt i, whose task is prefetched, and what the client
// does with the result.
func (m *Model) requeuePrefetched(s *State, i int) Outcome {
	a := &s.Attempts[i]
	t, outcome := s.task(a.Task), Superseded
	a.Prefetched, a.Off = false, true
	if t.In == Active && (a.Latest || m.Mistake == PrefetchUnchecked) {
		outcome, t.In = OK, Pending
		if m.Mistake != PrefetchComesLast {
			t.Ticket = a.Came
		}
		prepend(s.Queue[:], a.Task)
	}
	if a.Phase != Holding || a.Deprived || m.Mistake == PrefetchKeepsLock {
		s.forget(i)
		return outcome
	}
	a.Phase, a.Rejoins = Requeued, outcome == OK && m.Mistake != PrefetchStaysOut
	return outcome
}

// acknowledge moves the task of a to its end, or to its back-off.
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

// erase removes a task's hash with all marks in it.
func (s *State) erase(id ID) {
	t := s.task(id)
	t.Ticket, t.Woken = 0, false
	s.renamed(id)
}

// renamed notes that the task's hash names no earlier attempt any more.
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
