package protocol

import "fmt"

// The properties that a single step can break.

// broken returns the first that step breaks, "" if it breaks none.
func (m *Model) broken(before *State, step *Step) string {
	for _, check := range []func(*State, *Step) string{m.holders, m.tasks, m.attempts, m.lines} {
		if broken := check(before, step); broken != "" {
			return broken
		}
	}
	return ""
}

// holders: no two of them, and what a deprived one writes is refused.
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

// tasks: each in one place, none comes back from the dead, none is done without
// its effect, none is fetched from its own back-off.
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
		case was.In == Backoff && t.In == Pending && kind != Timer:
			return fmt.Sprintf("back-off: task %d was fetched from the back-off after its own failure", id)
		}
	}
	return ""
}

// attempts: a living one keeps its task.
func (m *Model) attempts(before *State, step *Step) string {
	s, kind := &step.Next, step.Move.Kind
	for i := range s.Attempts {
		a := &s.Attempts[i]
		if a.Task == 0 || !a.Latest {
			continue
		}
		taken := a.Off && !before.Attempts[i].Off && kind != Shutdown && !a.Stalled
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

// lines: who gets the lock is in none, who is parked stays in one until it is
// called, a ghost that was seen is in none.
func (m *Model) lines(before *State, step *Step) string {
	s, move := &step.Next, step.Move
	if step.Outcome == Granted && move.Kind == Acquire && s.task(move.Task).InLine != 0 {
		return fmt.Sprintf("lines: task %d holds the lock, and is in line", move.Task)
	}
	for n := range m.Resources {
		was, t := &before.Tasks[n], &s.Tasks[n]
		waited := was.In == Parked && was.Ticket != 0 && was.InLine == was.Ticket
		own := move.Kind == Drop || move.Kind == Acquire && move.Task == ID(n+1) // by an earlier attempt
		if waited && t.In == Parked && t.InLine == 0 && !own {
			return fmt.Sprintf("lines: task %d is parked, was not called, and lost its place", n+1)
		}
	}
	for i := range s.Calls {
		c := &before.Calls[i]
		if c.Task == 0 || !c.Standing || s.Calls[i].Task != 0 || move.Kind == Crash {
			continue
		}
		if t := s.task(c.Task); t.finished() && t.InLine != 0 {
			return fmt.Sprintf("ghosts: task %d is gone, its call saw it, and it is still in line", c.Task)
		}
	}
	return ""
}
