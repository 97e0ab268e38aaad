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
