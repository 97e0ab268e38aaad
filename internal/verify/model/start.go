package model

// begin begins an attempt of a task, with its lock if that is known. It reports whether that went well.
func (x *script) begin(id ID, ticket uint8, answers bool) bool {
	s := x.s
	t := s.task(id)
	slot := s.slot()
	s.Attempts[slot] = Attempt{Task: id, Server: x.server, Phase: Begun, Locked: t.Known}
	ok := x.item(func() { x.start(id, slot, ticket) })
	if !ok || !answers {
		s.Attempts[slot].Phase = Gone // nobody hears of it
	}
	return ok
}

// start makes the writes for that: first the places where a task is found after a crash, then the others.
func (x *script) start(id ID, slot int, ticket uint8) {
	s := x.s
	t, q, r := s.task(id), x.Tasks[id-1].Queue, x.Tasks[id-1].Resource
	if t.Known {
		x.write()
		s.Locks[r].take(token(slot))
	}
	if x.Mistake == PopsFirst {
		x.leave(id)
	}
	set(x, &t.Lease, Runs)
	x.write()
	t.Status, t.Attempt, t.Ticket = Active, token(slot), ticket
	x.leave(id)
	if t.Known && t.Line > 0 { // one that is to ask keeps its place until then
		set(x, &t.Line, 0)
		x.relist(q, r, true)
	}
}

// leave takes a task out of the retry set and out of pending.
func (x *script) leave(id ID) {
	t, queue := x.s.task(id), &x.s.Queues[x.Tasks[id-1].Queue]
	if t.Set != NotIn {
		set(x, &t.Set, NotIn)
	}
	if queue.index(id) >= 0 && (!t.Known || t.Line == 0 || x.Mistake != PopUnchecked) {
		x.write()
		queue.remove(id)
	}
}

// ask gives an active task its lock, as only its server could tell which, or parks it.
func (x *script) ask(id ID, slot int) Result {
	s := x.s
	t, r := s.task(id), x.Tasks[id-1].Resource
	l := &s.Locks[r]
	mine := l.Token == token(slot) && x.Mistake != AskAgainParks // an earlier try failed after that
	if mine || l.Token == free && x.next(id, t.Ticket) && (x.done[x.Tasks[id-1].Queue] || x.Mistake == AsksFirst) {
		x.write()
		l.take(token(slot))
		set(x, &t.Known, true)
		s.Attempts[slot].Locked = true
		return IsGranted
	}
	set(x, &t.Set, Waits)
	x.enter(id, t.Ticket, x.when(x.Tasks[id-1].Queue, r, t.Ticket))
	x.write()
	t.Status, t.Known = Retry, true
	set(x, &t.Lease, NoLease)
	return IsOver
}

// slot returns a free one.
func (s *State) slot() int {
	for i := range s.Attempts {
		if s.Attempts[i].Phase == None {
			return i
		}
	}
	panic("ready: too many attempts")
}
