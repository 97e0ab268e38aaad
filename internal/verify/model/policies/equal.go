package policies

// others is equal.lua. It returns who is registered, 0 for the task itself, and whether more wait than are
// to.
func (m *Model) others(s *State, i id, most uint8) (equal id, many bool) {
	t := s.task(i)
	again := s.Equal == i && s.EqualIn == t.Came && m.Mistake != RepeatIsTooMany // an earlier try has registered it
	many = most > 0 && s.queued() > int(most) && !again && m.Mistake != ManyWait
	if !m.equals(i) {
		return 0, many
	}
	if e := s.Equal; e != 0 && e != i && e != t.Gone && s.task(e).Queued > 0 {
		t.EqualAt, t.EqualIn = s.task(e).Queued, s.EqualIn
		return e, many
	}
	if t.Queued == 0 || many && m.Mistake != RejectedIsRegistered {
		return 0, many
	}
	if s.Equal != i || s.EqualIn < t.Came && m.Mistake != RegisteredTooEarly {
		s.EqualIn = t.Came
	}
	s.Equal, t.Known = i, true
	m.position(s, i)
	return 0, many
}

// position gives a task the position of one that it has deleted.
func (m *Model) position(s *State, i id) {
	if t := s.task(i); t.Gets > 0 {
		t.Queued, t.Since = t.Gets, t.GetsIn
	}
}

// askOthers is the first part of mayWait.
func (m *Model) askOthers(s *State, i id) {
	t, most := s.task(i), m.policy(i).MaxWaiting
	switch {
	case t.Waits:
		most = 0
	case most > 0 && t.Waited: // its worker may not have left the wait queue yet
		most++
	}
	equal, many := m.others(s, i, most)
	switch {
	case m.overdue(s, i, m.came(i, t.At)):
		t.Phase = tooLate
	case equal != 0:
		t.Phase, t.Equal, t.Older = meeting, equal, s.older(equal, i)
	case many:
		t.Phase = rejecting
	case m.policy(i).OnBusy == Wait && !t.Waits && !t.Waited:
		t.Phase = admitted
	default:
		t.Phase = parking
	}
}

// older reports whether a registered task was taken before another, or if that is not known: a worker has
// taken it again, and its registration is still that of before.
func (s *State) older(e, than id) bool {
	return s.task(e).Taken < s.task(than).Taken || !s.task(e).Known
}

// replaces reports whether a task replaces the equal one.
func (m *Model) replaces(t *task, i id) bool {
	return m.policy(i).OnBusy == Replace && (t.EqualIn <= t.Came || m.Mistake == EarlierReplaces)
}

// runs reports whether a task is to run, as far as replaced.lua knows.
func (m *Model) runs(e *task) bool {
	return e.Phase.active() || e.Phase == parked || e.Phase == pending && e.Ticket > 0 ||
		e.End == foreign && m.Mistake == StateIgnoresTicket || m.Mistake == StateUnchecked
}

// replace is replaced.lua for a task that deletes the equal one.
func (m *Model) replace(s *State, i id) {
	t := s.task(i)
	e := s.task(t.Equal)
	gets := t.EqualAt
	if m.Mistake != HeadStartKept {
		gets += m.headStart(t.Equal) - m.headStart(i)
	}
	if m.Mistake == PositionFirst && s.Equal != i {
		t.Gone, t.Gets, t.GetsIn = t.Equal, gets, e.Since
		s.Equal, s.EqualIn = i, t.Came
		m.position(s, i)
		return
	}
	switch {
	case e.Phase == parked && e.Ticket == t.EqualAt, e.Phase == pending && e.Ticket > 0 && m.Mistake == DeletesWoken:
		e.local, e.End, e.By = local{Phase: ended}, replaced, i
		t.Deleted = true
		if !m.overdue(s, i, e.Since) || m.Mistake == TakesOverLate {
			t.Gets, t.GetsIn = gets, e.Since
		}
		for n := range s.Tasks { // it waits beside the same tasks
			if s.Tasks[n].Alive&t.Equal.bit() != 0 {
				t.Alive |= id(n + 1).bit()
			}
		}
		t.Alive |= e.Alive
	case m.runs(e):
		t.Deleted, t.Gets, t.GetsIn = false, 0, 0
	default:
		t.Deleted = false
	}
	if e.Phase != ended {
		t.Alive |= t.Equal.bit()
	}
	t.Gone, t.Phase = t.Equal, met
	if m.Mistake == PositionFirst {
		t.At, t.Equal = t.Queued, 0
		t.Phase = then(t.Deleted, clearing, parking)
	}
}

// look is replaced.lua for a task that is dropped if the equal one still waits.
func (m *Model) look(s *State, i id) {
	t := s.task(i)
	tooLate := m.overdue(s, i, t.EqualIn) && m.Mistake != CoalescesIntoLate
	if m.runs(s.task(t.Equal)) && !tooLate {
		t.Phase, t.By = dropping, t.Equal
		return
	}
	t.Gone, t.Deleted, t.Phase = t.Equal, false, met
	if s.task(t.Equal).Phase != ended {
		t.Alive |= t.Equal.bit()
	}
}

// askAgain is the second call of equal.lua.
func (m *Model) askAgain(s *State, i id) {
	t := s.task(i)
	t.Equal, _ = m.others(s, i, 0)
	t.Older = t.Equal != 0 && s.older(t.Equal, i)
	if m.Mistake == PositionUnregistered {
		t.Equal = 0
		m.position(s, i)
	}
	if t.Equal == 0 && t.Gets > 0 {
		t.At = t.Gets
	}
	t.Phase = then(t.Equal != 0, meeting, parking)
	if t.Deleted {
		t.Phase = clearing
	}
}

// meets notes which of two tasks that replace was taken earlier, if both are parked and none is about to be
// woken. If one could not delete the other, as that had a worker, each of them may go first.
func (m *Model) meets(s *State, i, j id) {
	a, b := s.task(i), s.task(j)
	switch {
	case i == j || a.Phase != parked || b.Phase != parked || s.For == i || s.For == j:
	case m.policy(i).OnBusy != Replace || m.policy(j).OnBusy != Replace:
	case a.Alive&j.bit() != 0 || b.Alive&i.bit() != 0:
	case b.Taken < a.Taken && b.First < a.First:
		a.Met |= j.bit()
	case b.Taken > a.Taken && b.First > a.First: // after a crash it may be both
		b.Met |= i.bit()
	}
}
