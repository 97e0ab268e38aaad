package policies

import "slices"

// broken returns the property that the step from one state to the next breaks, "" for none.
func (m *Model) broken(from, to *State) string {
	for n := range m.Tasks {
		if broken := m.taskBroken(from, to, id(n+1)); broken != "" {
			return broken
		}
	}
	if to.For != from.For && to.For != 0 && to.For != goneWorker {
		if broken := m.passes(from, to.For); broken != "" {
			return broken
		}
	}
	if to.Faults == m.Faults {
		return m.tooMany(to)
	}
	return ""
}

func (m *Model) taskBroken(from, to *State, i id) string {
	was, is := from.task(i), to.task(i)
	p := m.policy(i)
	ends := is.End != unended && was.End == unended
	starts := is.Phase == running && was.Phase != running
	switch {
	case was.End != unended && is.End != was.End:
		return "ends: a task ends twice"
	case ends && is.End == replaced && was.Phase != parked:
		return "replaced: a task is deleted that was woken or is at work"
	case ends && is.End == replaced && !from.task(is.By).Older:
		return "replaced: a task is deleted for an earlier one"
	case p.OnBusy == Reject && from.For == i && was.Phase == taken && (is.Phase == rejecting || is.Phase == asked):
		return "own lock: a task is rejected for the lock that is reserved for it"
	case starts && is.Waits && p.MaxWait > 0 && to.Clock > is.Since+p.MaxWait,
		starts && was.atWork() && p.MaxWait > 0 && to.Clock > max(is.Since, is.Taken)+p.MaxWait:
		return "late: a task runs that has waited too long"
	case is.GetsIn > 0 && is.GetsIn != was.GetsIn && m.overdue(to, i, is.GetsIn):
		return "dead: a task is given a position that has waited too long"
	case ends && is.End == expired && was.Phase == running:
		return "at work: a task ends that has waited too long and is at work"
	case ends && is.End == expired && to.Clock <= is.Since+p.MaxWait:
		return "early: a task ends that has not waited too long"
	case p.OnBusy == Coalesce && is.Phase == dropping && was.Phase == meeting && to.task(is.By).Phase == parked && m.overdue(to, is.By, max(to.task(is.By).Since, to.task(is.By).Taken)):
		return "lost: a task is dropped for one that will not run"
	case ends && is.End == refused && is.First == is.Taken && to.standsFor(i):
		return "lost: a task is rejected, and another was dropped for it"
	case is.Phase == ended && to.final() && to.unheard(i):
		return "lost: a task was dropped or replaced, and no equal one has started since it came"
	}
	if starts {
		for n, other := range to.Tasks {
			if other.Ran && id(n+1) != i && other.Met&i.bit() != 0 {
				return "last: of two replacements the earlier one runs last"
			}
		}
	}
	return ""
}

// unheard reports whether a task was dropped or replaced, and nobody has done its work, though somebody
// should have.
func (s *State) unheard(i id) bool {
	t := s.task(i)
	if t.End != coalesced && t.End != replaced || t.Heard || t.Kept {
		return false
	}
	root := s.root(i)
	if root == 0 {
		return true
	}
	crashed := s.task(root).First != s.task(root).Taken
	return s.task(root).End != expired && (!crashed || s.task(root).End != refused)
}

// standsFor reports whether another task was dropped for this one, and nobody has done its work.
func (s *State) standsFor(i id) bool {
	for n, t := range s.Tasks {
		if id(n+1) != i && s.root(id(n+1)) == i && !t.Heard {
			return true
		}
	}
	return false
}

// passes reports whether a task gets the lock while one waits that goes first.
func (m *Model) passes(s *State, next id) string {
	if next > outsider {
		return s.workerPasses(next - outsider)
	}
	t, p := s.task(next), m.policy(next)
	for n := range m.Tasks {
		other, q := &s.Tasks[n], m.policy(id(n+1))
		if id(n+1) == next || other.Phase != parked || other.Queued == 0 || other.Queued != other.Ticket || t.Queued == 0 {
			continue
		}
		switch {
		case p.Priority == q.Priority && other.Since < t.Since:
			return "order: a task goes before one of its level that came earlier"
		case p.Priority > q.Priority && 2*t.Since > 2*other.Since+headStart:
			return "ageing: a task goes before one that came earlier by more than its head start"
		case p.Priority < q.Priority && 2*other.Since < 2*t.Since+headStart:
			return "priority: a task goes before one of a higher level that came within its head start"
		}
	}
	return ""
}

// workerPasses reports whether the worker of a task gets the lock while a task waits that came before that
// task, and so before the worker.
func (s *State) workerPasses(i id) string {
	if s.task(i).Worker > 0 && slices.ContainsFunc(s.Tasks[:], func(t task) bool {
		return t.Phase == parked && t.Queued > 0 && t.Queued == t.Ticket && t.Since < s.task(i).Since
	}) {
		return "order: a worker that waits gets the lock before a task that came earlier"
	}
	return ""
}

// tooMany reports whether more tasks are parked than any of them allows.
func (m *Model) tooMany(s *State) string {
	count := 0
	for _, t := range s.Tasks {
		if t.Phase == parked {
			count++
		}
	}
	for _, p := range m.Tasks {
		most := int(p.MaxWaiting)
		if p.OnBusy == Wait {
			most++
		}
		if p.MaxWaiting == 0 || count <= most {
			return ""
		}
	}
	return "many: more tasks wait than are to"
}
