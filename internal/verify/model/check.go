package model

import "fmt"

// The properties that a single step can break.

// broken returns the first that step breaks, "" if it breaks none.
func (m *Model) broken(before *State, step *Step) string {
	for _, check := range []func(*State, *Step) string{m.holders, m.tasks, m.attempts, m.waiters, m.places} {
		if broken := check(before, step); broken != "" {
			return broken
		}
	}
	return ""
}

// holders: no lock has two, and the ledger refuses a deprived one.
func (m *Model) holders(before *State, step *Step) string {
	s, move := &step.Next, step.Move
	for i := range s.Attempts {
		a := &s.Attempts[i]
		if a.Phase != Holding && a.Phase != Wrote {
			continue
		}
		l := &s.Locks[m.Resource(a.Task)]
		holds := l.Value == Held && l.By == uint8(i+1)
		switch {
		case !a.Deprived && !holds:
			return fmt.Sprintf("one holder: task %d works, and has lost its lock without an expiry or a deletion", a.Task)
		case holds && a.Phase == Holding && a.Fence != l.Last:
			return fmt.Sprintf("one holder: the fence of task %d is not the last", a.Task)
		}
	}
	if move.Kind == Write && s.Attempts[move.Slot].Fence < before.Locks[move.Resource].Seen {
		return fmt.Sprintf("one holder: task %d wrote under an older fence than another before it", move.Task)
	}
	return ""
}

// tasks: each is in one place. None comes back from the dead, or leaves its own back-off early.
// None is done without its effect, or by an attempt that had lost its lock.
func (m *Model) tasks(before *State, step *Step) string {
	for n := range m.Resources {
		id := ID(n + 1)
		was, t := before.task(id), step.Next.task(id)
		pending := 0
		for _, other := range step.Next.Queue {
			if other == id {
				pending++
			}
		}
		kind := step.Move.Kind
		switch {
		case pending > 1, (pending == 1) != (t.In == Pending):
			return fmt.Sprintf("one place: task %d is in pending %d times, and its state says otherwise", id, pending)
		case (was.In == Done || was.In == Deleted) && t.In != was.In:
			return fmt.Sprintf("one place: task %d is back, although it was gone", id)
		case t.In == Done && t.Effects != 1:
			return fmt.Sprintf("once: task %d is done, and its effect is there %d times", id, t.Effects)
		case was.In != Done && t.In == Done && before.Attempts[step.Move.Slot].Deprived:
			return fmt.Sprintf("own lock: task %d is done, and its attempt had lost its lock", id)
		case was.In == Backoff && t.In == Pending && kind != Timer:
			return fmt.Sprintf("back-off: task %d was fetched from the back-off after its own failure", id)
		}
	}
	return ""
}

// attempts: nobody takes the task of a living one.
func (m *Model) attempts(before *State, step *Step) string {
	s, kind := &step.Next, step.Move.Kind
	for i := range s.Attempts {
		a, was := &s.Attempts[i], &before.Attempts[i]
		if a.Task == 0 || a.Task != was.Task || !a.Latest && !was.Latest {
			continue
		}
		own := kind == Shutdown || kind == Requeue && step.Move.Slot == uint8(i)
		taken := a.Off && !was.Off && !own && !a.Stalled
		if taken || !a.Off && s.task(a.Task).In != Active {
			return fmt.Sprintf("own acknowledgement: task %d was moved while its attempt lives", a.Task)
		}
	}
	if kind == Find {
		l := &before.Locks[step.Move.Resource]
		if a := before.latest(step.Move.Task); a >= 0 && l.Value == Held && l.By == uint8(a+1) {
			return fmt.Sprintf("recovery: task %d is taken from an attempt that holds its lock", step.Move.Task)
		}
	}
	return ""
}

// waiters checks the wait queues. A holder is in none. A parked task stays in one until a waker
// comes. A task that is gone leaves it once a waker has seen that.
func (m *Model) waiters(before *State, step *Step) string {
	s, move := &step.Next, step.Move
	if move.Outcome == Granted && move.Kind == Acquire && s.task(move.Task).Position != 0 {
		return fmt.Sprintf("waiters: task %d holds the lock, and is in the wait queue", move.Task)
	}
	for n := range m.Resources {
		was, t := &before.Tasks[n], &s.Tasks[n]
		waited := was.In == Parked && was.Ticket != 0 && was.Position == was.Ticket
		own := (move.Kind == Acquire || move.Kind == Rejoin) && move.Task == ID(n+1) // by an earlier attempt
		if waited && t.In == Parked && t.Position == 0 && !own {
			return fmt.Sprintf("waiters: task %d is parked, was not woken, and lost its position", n+1)
		}
	}
	for i := range s.Wakers {
		c := &before.Wakers[i]
		if c.Task == 0 || !c.Standing || s.Wakers[i].Task != 0 || move.Kind.fault() || move.Kind == Skip {
			continue // of a skipped waiter a waker sees it later
		}
		if t := s.task(c.Task); t.finished() && t.Position != 0 {
			return fmt.Sprintf("gone waiters: task %d is gone, its waker saw that, and it is still in the wait queue", c.Task)
		}
	}
	return ""
}

// places: a task comes again with its ticket until it has had the lock or its worker died. A
// requeued task has the lock before those that came later.
func (m *Model) places(before *State, step *Step) string {
	s, move := &step.Next, step.Move
	for n := range m.Resources {
		id := ID(n + 1)
		was, is := before.ticket(id), s.ticket(id)
		switch {
		case was == 0, is != 0 && is <= was:
		case is == 0 && before.ends(move, id):
		default:
			return fmt.Sprintf("places: task %d has lost its ticket", id)
		}
	}
	if move.Outcome != OK || move.Kind != Release && move.Kind != Fail && move.Kind != GiveBack {
		return ""
	}
	t, a, l := before.task(move.Task), &before.Attempts[move.Slot], &s.Locks[move.Resource]
	if a.Latest && a.Phase != Regained && t.In == Pending && t.Ticket != 0 && l.Value == Reserved && l.For != move.Task && s.task(l.For).Position > t.Ticket {
		return fmt.Sprintf("places: task %d was requeued, and its attempt leaves the lock to task %d, which came later", move.Task, l.For)
	}
	return ""
}

// ticket returns the ticket under which a task waits, or is on its way; 0 for none.
func (s *State) ticket(id ID) uint8 {
	if t := s.task(id); t.In != Active {
		return t.Ticket
	}
	if i := s.latest(id); i >= 0 {
		return s.Attempts[i].Came
	}
	return 0
}

// ends reports whether a move may end a task's ticket. The task has had its lock, its worker died,
// or nobody knows its attempt.
func (s *State) ends(move Move, id ID) bool {
	switch move.Kind {
	case Finish:
		return move.Task == id
	case Acknowledge, Crash, LoseResult, Recover, RecoverByAsynq, Delete:
		return true
	case Park:
		return s.Attempts[move.Slot].Phase == Lost
	default:
		return false
	}
}
