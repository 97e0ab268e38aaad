package model

// apply makes a move.
func (m *Model) apply(s *State, move Move) Outcome {
	id, r := move.Task, move.Resource
	switch move.Kind {
	case Dequeue:
		m.dequeue(s, move.Worker)
	case Wake, Confirm, Leave, Skip, GiveUp:
		return m.applyToWaker(s, move.Kind, &s.Wakers[move.Slot])
	case Sweep:
		return m.sweep(s, r, move.Resumed)
	case Miss:
		s.Loss = Loss{id, s.task(id).Ticket}
	case Restore:
		m.restore(s)
	case Enlist:
		s.Locks[r].Listed = true
	case Timer, LastResort:
		s.enqueue(id)
	case ExpireReservation, ExpireReservationEarly, Expire, ExpireAlive, FreeForeign, DeleteLock:
		m.free(s, r)
	case TakeForeign:
		m.set(s, r, Foreign, 0, 0)
	case Find:
		return m.find(s, id)
	case HandOff:
		return m.handOffFound(s, r)
	case Recover:
		return m.recover(s, id)
	case RecoverByAsynq:
		s.takeAway(id)
		s.task(id).In = Backoff
	case Pause, Resume:
		s.Paused = move.Kind == Pause
	case Crash:
		m.crash(s, move.Worker)
	case Delete:
		remove(s.Queue[:], id)
		s.task(id).In = Deleted
		s.erase(id)
	case Archive:
		remove(s.Queue[:], id)
		s.task(id).In = Archived
	case Run:
		s.enqueue(id)
	default:
		return m.applyToAttempt(s, move.Kind, int(move.Slot))
	}
	return OK
}

// applyToAttempt makes a move of attempt i.
func (m *Model) applyToAttempt(s *State, kind Kind, i int) (outcome Outcome) {
	a := &s.Attempts[i]
	l, t := &s.Locks[m.Resource(a.Task)], s.task(a.Task)
	switch kind {
	case Acquire:
		return m.acquire(s, i)
	case Rejoin:
		return m.rejoin(s, i)
	case TakePrefetched:
		a.Prefetched = false
		if a.Phase == Holding && a.Deprived { // it has lost the lock meanwhile, and asks again
			a.Phase, a.Fence, a.Deprived = Taken, 0, false
		}
	case Requeue:
		return m.requeuePrefetched(s, i)
	case Write:
		a.Phase, l.Seen = Wrote, max(l.Seen, a.Fence)
		t.Effects = 1 // the ledger has the task's id, so that a second effect changes nothing
	case Release, Fail:
		then := Lost
		if outcome = m.release(s, i); outcome == OK && kind == Fail {
			then = Failed
			s.Failures--
		} else if outcome == OK && a.Phase == Wrote {
			then = Succeeded
		}
		a.Phase = then
	case Finish:
		return m.finish(s, i)
	case Stall:
		a.Stalled = true
	case Shutdown:
		m.requeue(s, a)
	case LoseRelease:
		a.Phase, l.By = Succeeded, ByDead
	default: // the end of the attempt
		switch {
		case kind == Park:
			outcome = m.park(s, a)
		case kind == GiveBack:
			outcome = m.release(s, i)
		case kind == Acknowledge && a.Phase == Succeeded:
			outcome = m.acknowledge(s, a, Done)
		case kind == Acknowledge:
			outcome = m.acknowledge(s, a, Backoff)
		}
		s.forget(i)
	}
	return outcome
}

// forget ends an attempt. A lock that the attempt holds then belongs to nobody.
func (s *State) forget(i int) {
	for r := range s.Locks {
		if l := &s.Locks[r]; l.heldBy(uint8(i)) {
			l.By = ByDead
		}
	}
	s.Attempts[i] = Attempt{}
}

// applyToWaker makes a move of a waker.
func (m *Model) applyToWaker(s *State, kind Kind, c *Waker) Outcome {
	if kind == Wake {
		return m.wakeStep(s, c)
	}
	was := *c
	*c = Waker{}
	switch kind {
	case Confirm:
		m.confirm(s, was)
	case Leave:
		m.leave(s, was)
	case Skip:
		m.skip(s, was)
	default: // the waker gives up
	}
	return OK
}

// wakeStep tries to wake a task, and chooses the next stage.
func (m *Model) wakeStep(s *State, c *Waker) Outcome {
	if c.Stage == Moving {
		prepend(s.Queue[:], c.Task)
		s.task(c.Task).In, c.Stage = Pending, Confirming
		return Woken
	}
	if m.Mistake == WakeInTwoSteps && m.mayWake(s, c.Task, c.Ticket) == Woken {
		c.Stage = Moving
		return OK
	}
	outcome := m.wake(s, c.Task, c.Ticket)
	switch {
	case outcome == Woken:
		c.Stage = Confirming
	case outcome == Marked && m.Mistake == MarkedAndForgotten, outcome == Gone && m.Mistake == GoneNotSkipped:
		*c = Waker{}
	case outcome == Marked && c.Stage == Waking:
		c.Stage = Again
	case outcome == PausedQueue && m.Mistake != PausedDropped:
		c.Stage = Skipping
	default:
		c.Stage = Leaving
	}
	return outcome
}

// free empties a lock, and so deprives its holder.
func (m *Model) free(s *State, r uint8) {
	if l := &s.Locks[r]; l.Value == Held && l.By == ByRecovery {
		s.Recovery.Holds = false
	} else if l.Value == Held && l.By != ByDead {
		s.Attempts[l.By-1].Deprived = true
	}
	m.set(s, r, Free, 0, 0)
}

// crash ends worker w with all that it has under way.
func (m *Model) crash(s *State, w uint8) {
	for i := range s.Attempts {
		if a := &s.Attempts[i]; a.Task != 0 && a.Worker == w {
			s.forget(i)
		}
	}
	for i := range s.Wakers {
		if c := &s.Wakers[i]; c.Task != 0 && c.Worker == w {
			*c = Waker{}
		}
	}
	if w == elected {
		if s.Recovery.Holds {
			s.Locks[m.Resource(s.Recovery.Task)].By = ByDead
		}
		s.Loss, s.Recovery = Loss{}, Recovery{}
	}
}

// find has the recovery find an orphan, and take its lock if that is free.
func (m *Model) find(s *State, id ID) Outcome {
	r := m.Resource(id)
	free := s.Locks[r].Value == Free
	s.Recovery = Recovery{Task: id, Same: true, Holds: free, Unreleased: free}
	if !free {
		return Joined
	}
	m.set(s, r, Held, ByRecovery, 0)
	s.Locks[r].Mark = false
	s.Locks[r].Last++
	return Granted
}

// handOffFound has the recovery release the lock of the task that it has found.
func (m *Model) handOffFound(s *State, r uint8) Outcome {
	if !s.Recovery.Holds {
		s.Recovery = Recovery{} // the recovery gives up what it does not understand
		return LostLease
	}
	s.Recovery.Holds, s.Recovery.Unreleased = false, false
	m.handOff(s, r, elected)
	return OK
}

// recover has the recovery move the task that it has found.
func (m *Model) recover(s *State, id ID) Outcome {
	same := s.Recovery.Same && s.expired(s.latest(id)) || m.Mistake == RecoveryUnchecked
	s.Recovery = Recovery{}
	if s.task(id).In != Active || !same {
		return Gone
	}
	s.takeAway(id)
	s.enqueue(id)
	return OK
}

// takeAway takes a task from its attempt, if that is alive.
func (s *State) takeAway(id ID) {
	if latest := s.latest(id); latest >= 0 {
		s.Attempts[latest].Off = true
	}
}

// enqueue puts a task at the end of pending.
func (s *State) enqueue(id ID) {
	s.task(id).In = Pending
	appendTo(s.Queue[:], id)
}
