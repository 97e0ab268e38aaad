package model

// settle ends an attempt, and frees its lock.
func (x *script) settle(slot int, kind Kind) Result {
	s := x.s
	a := &s.Attempts[slot]
	t := s.task(a.Task)
	latest := t.Status == Active && t.Attempt == token(slot)
	switch x.Mistake {
	case OutcomeUnchecked:
		latest = t.Status == Active
	case LeftUnchecked:
		latest = t.hash() && t.Attempt == token(slot)
	default:
	}
	switch {
	case !latest:
		if x.Mistake != StaleKeepsLock {
			x.free(slot)
		}
		return IsOver
	case kind == Ask:
		return x.ask(a.Task, slot)
	case kind != Requeue && kind != Snooze && a.Locked && !x.has(&s.Redis, a.Task, s.Holder(token(slot))) && x.Mistake != LostSettles:
		x.keep(slot)
		return IsLost
	}
	switch kind {
	case Succeed:
		set(x, t, Task{Status: Done, Lease: t.Lease, Line: t.Line})
	case Fail:
		t.Known = t.Known && !x.Tasks[a.Task-1].asks()
		x.backOff(t, 0)
	case Snooze:
		x.backOff(t, t.Ticket)
	case Requeue:
		t.Known = t.Known || a.Locked // the outcome names the lock, also if a failover has forgotten it
		x.comeBack(a.Task, Waits, Now)
	case Hold:
		x.comeBack(a.Task, Held, Later)
	case StopLine:
		x.comeBack(a.Task, Stopped, Later)
	default:
		panic("ready: no such outcome")
	}
	set(x, &t.Lease, NoLease)
	x.free(slot)
	return IsOver
}

// keep keeps the place of a task whose attempt has lost a lock, as its server is about to say what becomes of it. The lease comes
// last: if its write is the one that fails, or none is made, the task is recovered before anybody else begins.
func (x *script) keep(slot int) {
	id := x.s.Attempts[slot].Task
	t := x.s.task(id)
	for _, r := range x.Tasks[id-1].Locks() {
		if l := &x.s.Locks[r]; l.Token == free && t.Known {
			x.write()
			l.take(x.s.Holder(token(slot)))
			l.Revoked = true
		}
	}
	set(x, &t.Lease, Runs)
}

// backOff puts a task into the retry set for a while. Without a ticket it then comes at the end of its line.
func (x *script) backOff(t *Task, ticket uint8) {
	if x.Mistake == LeavesFirst {
		set(x, &t.Lease, NoLease)
	}
	set(x, &t.Set, Backoff)
	x.write()
	t.Status, t.Ticket = Retry, ticket
}

// comeBack puts an active task into its line at its ticket, at which somebody is to look by then; or at the head of pending if
// nobody knows its lock. It leaves the lease to the caller: whatever fails here, the lease brings it back.
func (x *script) comeBack(id ID, why Set, look Score) {
	s := x.s
	t, spec := s.task(id), x.Tasks[id-1]
	if x.Mistake == LeavesFirst {
		set(x, &t.Lease, NoLease)
	}
	if !t.Known || x.Mistake == BackToPending {
		x.write()
		s.Queues[spec.Queue].unshift(id)
		set(x, &t.Status, Pending)
		return
	}
	if x.Mistake == TicketForgotten {
		t.Ticket = x.newTicket(id)
	}
	if x.Mistake == HashFirst {
		set(x, &t.Status, Retry)
	}
	set(x, &t.Set, why)
	t.HasHeld = t.holds()
	for _, r := range spec.Locks() {
		if t.holds() {
			x.mark(spec.Queue, r, Later)
		}
	}
	x.enter(id, t.Ticket, look) // no offer: it has had its turn
	x.write()
	if t.Status = Retry; why == Stopped {
		t.Status = Archived
	}
}

// enter puts a task into its lines, which somebody should look at by then. The entry of the ready set comes first and goes last, so
// there is no line without one.
func (x *script) enter(id ID, ticket uint8, look Score) {
	for _, r := range x.Tasks[id-1].Locks() {
		if x.enterLine(id, r, ticket, look); x.Mistake == EntersOneLine {
			return
		}
	}
}

func (x *script) enterLine(id ID, r, ticket uint8, look Score) {
	s := x.s
	t, q := s.task(id), x.Tasks[id-1].Queue
	l := &s.Locks[r]
	first := l.Lines[q] == 0 || ticket < l.Lines[q]
	// A new task behind others who wait for a free lock changes nothing: the entry says when the first of them may start.
	behind := x.Mistake != ScoredAhead && l.Token == free && !first && t.Ticket == 0 && s.Queues[q].Ready[r] != NoEntry
	if t.Set == Waits && !behind && x.Mistake != ParkNotReady && (x.Mistake != HeadNotLowered || s.Queues[q].Ready[r] == NoEntry) {
		x.mark(q, r, look)
	}
	if first && x.Mistake != LineUnlisted {
		set(x, &l.Lines[q], ticket)
	}
	set(x, &t.Line[r], ticket)
}

// whenAll returns when the lines of a task should be looked at that joins them: at once for a set, as its locks are looked at together.
func (x *script) whenAll(id ID, ticket uint8) Score {
	if spec := x.Tasks[id-1]; spec.Resource != Both {
		return x.when(spec.Queue, spec.Resource, ticket)
	}
	return Now
}

// when returns when the first of a queue's line could start, with that ticket at the latest.
func (x *script) when(q, r, ticket uint8) Score {
	if look := x.dueOf(r); look != Now || !x.offered(q, r, ticket) {
		return look
	}
	return Offer
}

// due returns when the lock of a task could be taken. Those of a set are looked at together.
func (x *script) due(id ID) Score {
	if r := x.Tasks[id-1].Resource; r < MaxResources {
		return x.dueOf(r)
	}
	return Now
}

// dueOf returns when a lock could be taken, as far as is known.
func (x *script) dueOf(r uint8) Score {
	l := &x.s.Locks[r]
	switch {
	case x.Mistake == ScoredAhead:
		return Expiry
	case l.Token == Foreign && x.Mistake == ForeignAsOurs:
		return Never
	case l.Token == Foreign:
		return Second
	case l.Token != free:
		return Expiry
	default:
		return Now
	}
}

// offered reports whether another queue has a first waiter with an older ticket, and had a server with a free
// slot.
func (x *script) offered(q, r, ticket uint8) bool {
	l := &x.s.Locks[r]
	oldest := l.oldest()
	return oldest < MaxQueues && oldest != q && (ticket == 0 || l.Lines[oldest] < ticket) && (x.s.Queues[oldest].Seen || x.Mistake == OfferedToAll)
}

// mark makes an entry due at a time, unless it is before.
func (x *script) mark(q, r uint8, score Score) {
	entry := &x.s.Queues[q].Ready[r]
	if x.Mistake == ScoredAhead && !score.due() && *entry != NoEntry { // without LT
		*entry = NoEntry
	}
	if *entry == NoEntry || score < *entry && !entry.due() {
		x.write()
		if *entry = score; score.due() {
			x.s.Queues[q].due(r)
		}
		x.touched[q] = x.touched[q] || score <= Offer
	}
}

// remark has an entry looked at at a time, also if it was due before: it was not the line's turn then.
func (x *script) remark(q, r uint8, score Score) {
	set(x, &x.s.Queues[q].Ready[r], score)
	if score.due() {
		x.s.Queues[q].Ready[r] = NoEntry // the last of those that are due
		x.s.Queues[q].due(r)
	}
	x.touched[q] = true
}

// free frees the locks that are those of the attempt, and marks all of their lines.
func (x *script) free(slot int) {
	spec, name := x.Tasks[x.s.Attempts[slot].Task-1], token(slot)
	if x.Mistake == MembersFree {
		name = x.s.Holder(name)
	}
	for n, r := range spec.Locks() {
		l := &x.s.Locks[r]
		switch {
		case l.Token != name && (x.Mistake != ReleaseOfAnothers || l.Token == free):
		case x.Mistake == MarksOneLine && n > 0:
			l.take(free)
		default:
			x.freeLock(r, spec.Queue)
		}
	}
}

func (x *script) freeLock(r, own uint8) {
	s, l := x.s, &x.s.Locks[r]
	x.release(r, own)
	if x.Mistake == OwnFirst && l.Lines[own] != 0 {
		for n := range s.Queues[own].Ready {
			if score := &s.Queues[own].Ready[n]; score.due() {
				*score++
			}
		}
		s.Queues[own].Ready[r] = 1
	}
}

// release frees a lock, and marks all of its lines.
func (x *script) release(r, own uint8) {
	l := &x.s.Locks[r]
	l.Fresh = true
	for q, ticket := range l.Lines {
		switch {
		case ticket == 0, x.Mistake == OwnLineOnly && uint8(q) != own:
		case x.offered(uint8(q), r, ticket), l.oldest() == own && uint8(q) != own: // whose server has a free slot now
			x.remark(uint8(q), r, Offer)
		default:
			x.remark(uint8(q), r, Now)
		}
		x.s.Queues[q].Notify = x.s.Queues[q].Notify || own == MaxQueues && ticket > 0 // no step will tell
	}
	x.write()
	l.take(free)
	l.Fresh = l.oldest() < MaxQueues
}
