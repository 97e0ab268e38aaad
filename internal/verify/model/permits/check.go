package permits

import "slices"

// broken returns the property that the step from one state to the next breaks, "" for none.
func (m *Model) broken(from, to *State) string {
	used, _ := to.used()
	allowed := int(max(to.Rule.Limit, to.Old.Limit))
	if to.Late {
		allowed = int(to.Rule.Limit)
	}
	switch {
	case to.gives(from) && to.users() > allowed:
		return "limit: more hold a permit, or have one reserved, than the limit allows"
	case to.grants(from) && to.holders() > allowed:
		return "limit: more hold a permit than the limit allows"
	case to.Rule != from.Rule && to.Permits != from.Permits:
		return "change: a new rule takes a permit away"
	case used > 0 && !to.Mark:
		return "mark: a plain program finds the lock free"
	case to.Wasted > 1:
		return "late: a waiter has had room for more than a second"
	}
	for _, r := range m.RatesOf(to.Rule) {
		r.Period = min(r.Period, to.Known)
		if to.grants(from) && to.Old.NewRates == to.Rule.NewRates && to.starts(r) > int(r.Starts) {
			return "rate: more start in a period than the rate allows"
		}
	}
	for n, is := range to.Tasks {
		i := ID(n + 1)
		granted := to.of(Held, i) >= 0 && from.of(Held, i) < 0
		switch {
		case to.permitsOf(i) > 1:
			return "one permit: a task has two"
		case is.Phase == Holding && (to.Permits[is.Permit].Value != Held || to.Permits[is.Permit].Of != i):
			return "belief: a task believes that it holds a permit, and does not"
		case from.of(Reserved, i) >= 0 && from.task(i).Phase == Pending && is.Phase == Parked && m.fine(to):
			return "in vain: nothing went wrong, and a waiter is woken for a permit that it does not get"
		case granted && is.Fence <= from.Last:
			return "fences: a grant has no higher fence than all before"
		case granted && from.of(Reserved, i) < 0 && passes(from, to, from.task(i)):
			return "order: a permit goes to a task while an earlier one waits"
		}
	}
	return ""
}

// fine reports whether nothing has gone wrong, and no operator has changed the rule.
func (m *Model) fine(s *State) bool { return s.Faults == m.Faults && s.Changes == m.Changes }

// users returns how many permits are held or reserved, or are believed to be held.
func (s *State) users() int {
	_, reservations := s.used()
	return s.holders() + reservations
}

// holders returns how many permits are held, or are believed to be.
func (s *State) holders() int {
	used, reservations := s.used()
	holders := used - reservations
	for n, t := range s.Tasks {
		if t.Phase == Holding && s.of(Held, ID(n+1)) < 0 {
			holders++
		}
	}
	return holders
}

// gives reports whether a permit is reserved or held that was not its task's before.
func (s *State) gives(from *State) bool {
	for n, p := range s.Permits {
		was := from.Permits[n]
		own := was.Of == p.Of && (was.Value == p.Value || was.Value == Reserved)
		if !own && (p.Value == Reserved || p.Value == Held) {
			return true
		}
	}
	return false
}

// grants reports whether a task is granted a permit.
func (s *State) grants(from *State) bool {
	return slices.ContainsFunc(s.Permits[:], func(p Permit) bool { return p.Value == Held && from.of(Held, p.Of) < 0 })
}

// permitsOf returns how many permits a task holds, or has reserved for it.
func (s *State) permitsOf(i ID) (n int) {
	for _, p := range s.Permits {
		if p.Of == i {
			n++
		}
	}
	return n
}

// passes reports whether a task that was granted a permit passes a waiter that is not woken. After
// a reservation has expired, whoever asks may have the permit.
func passes(from, to *State, was *Task) bool {
	if from.Gone {
		return false
	}
	for n, t := range to.Tasks {
		older := was.Ticket == 0 || t.Ticket < was.Ticket
		if t.Queued && older && to.of(Reserved, ID(n+1)) < 0 {
			return true
		}
	}
	return false
}
