package model

// begin begins an attempt of a task, with its lock if that is known; or under that of the first of a batch. It reports whether that
// went well.
func (x *script) begin(id ID, first, ticket uint8, answers bool) bool {
	s := x.s
	t := s.task(id)
	slot := s.slot()
	s.Attempts[slot] = Attempt{Task: id, Server: x.server, First: first, Phase: Begun, Locked: t.Known}
	ok := x.item(func() { x.start(id, slot, ticket) })
	if !answers || !ok && (first == free || t.Attempt != token(slot)) {
		s.Attempts[slot].Phase = Gone // nobody hears of it
	}
	return ok
}

// start makes the writes for that: first the places where a task is found after a crash, then the others.
func (x *script) start(id ID, slot int, ticket uint8) {
	s := x.s
	t, spec, joins := s.task(id), x.Tasks[id-1], s.Attempts[slot].First != free
	if t.Known && !joins {
		x.takeAll(id, slot)
	}
	if x.Mistake == PopsFirst {
		x.leave(id)
	}
	set(x, &t.Lease, Runs)
	x.write()
	t.Status, t.Attempt, t.Ticket, t.HasHeld = Active, token(slot), ticket, false
	x.leave(id)
	if !t.Known { // one that is to ask keeps its place until then
		return
	}
	for _, r := range spec.Locks() {
		if t.Line[r] > 0 && (x.Mistake != LeavesOneLine || r == spec.Locks()[0]) {
			set(x, &t.Line[r], 0)
			x.relist(spec.Queue, r, !joins)
		}
	}
}

// join begins attempts of the tasks that come next in the line of an attempt's lock, up to the first that is to run by itself. One
// that has crashed is: else it would take its neighbours along each time.
func (x *script) join(slot int, answers bool) {
	s, id := x.s, x.s.Attempts[slot].Task
	t, spec := s.task(id), x.Tasks[id-1]
	alone := t.Crashes > 0 && x.Mistake != CrashedJoins
	if alone || t.Status != Active || t.Attempt != token(slot) || !x.has(&s.Redis, id, token(slot)) || !x.recovered(spec.Queue) || s.Queues[spec.Queue].Paused {
		return
	}
	for _, next := range x.Line(&s.Redis, spec.Queue, spec.Resource) {
		switch joins := x.joins(next, spec.Resource); {
		case joins && !x.begin(next, token(slot), s.task(next).Line[spec.Resource], answers), !joins && x.Mistake != JoinsPast:
			return
		}
	}
}

// joins reports whether the first of a line may run with the one before it.
func (x *script) joins(id ID, r uint8) bool {
	t, spec := x.s.task(id), x.Tasks[id-1]
	return t.waits(r) && !t.HasHeld && (t.Crashes == 0 || x.Mistake == CrashedJoins) && spec.batches()
}

// takeAll gives an attempt the locks of its task.
func (x *script) takeAll(id ID, slot int) {
	for _, r := range x.Tasks[id-1].Locks() {
		x.write()
		x.s.Locks[r].take(token(slot))
	}
}

// leave takes a task out of the retry set and out of pending.
func (x *script) leave(id ID) {
	t, queue := x.s.task(id), &x.s.Queues[x.Tasks[id-1].Queue]
	if t.Set != NotIn {
		set(x, &t.Set, NotIn)
	}
	if queue.index(id) >= 0 && (!t.Known || t.Line == [MaxResources]uint8{} || x.Mistake != PopUnchecked) {
		x.write()
		queue.remove(id)
	}
}

// ask gives an active task its lock, as only its server could tell which, or parks it.
func (x *script) ask(id ID, slot int) Result {
	s := x.s
	t := s.task(id)
	mine, open := true, x.passable(s, id, true) && (x.done[x.Tasks[id-1].Queue] || x.Mistake == AsksFirst)
	for _, r := range x.Tasks[id-1].Locks() {
		l := &s.Locks[r]
		own := l.Token == token(slot) && x.Mistake != AskAgainParks // an earlier try failed after that
		mine, open = mine && own, open && (own || l.Token == free)
		if x.Mistake == TakesSome && l.Token == free {
			l.take(token(slot))
		}
	}
	if mine || open {
		x.takeAll(id, slot)
		set(x, &t.Known, true)
		s.Attempts[slot].Locked = true
		return IsGranted
	}
	set(x, &t.Set, Waits)
	x.enter(id, t.Ticket, x.whenAll(id, t.Ticket))
	x.write()
	t.Status, t.Known = Retry, true
	set(x, &t.Lease, NoLease)
	if x.Mistake != AskAgainParks && x.Mistake != TakesSome {
		x.free(slot)
	}
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
