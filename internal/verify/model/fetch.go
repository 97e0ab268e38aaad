package model

import "slices"

// fetch begins attempts for the free slots, and returns how many of these are left.
func (x *script) fetch(sent *Copy, answers bool) (left uint8) {
	s := x.s
	for left = sent.Slots; left > 0; left-- {
		took := false
		for n := range uint8(MaxQueues) {
			q := (sent.Order + n) % MaxQueues
			if took = x.serves(x.server, q) && x.recovered(q) && !s.Queues[q].Paused && x.take(q, answers); took {
				break
			}
		}
		if !took {
			break
		}
	}
	for q := range uint8(MaxQueues) {
		if !x.serves(x.server, q) || !x.visited[q] || s.Queues[q].Paused {
			continue
		}
		s.Queues[q].Seen = s.Queues[q].Seen || sent.Slots > 0
		x.more = x.more || s.Queues[q].first() < MaxResources // to park a task may make its lock's entry due
		if x.Mistake == RecoverLast {
			x.recover(q)
			x.more = true
		}
	}
	return left
}

// take begins an attempt of a task of the queue, from the ready set and from pending in turns.
func (x *script) take(q uint8, answers bool) bool {
	turn := &x.turn[q]
	pending := *turn
	if x.Mistake == TurnForgotten {
		pending = true
	}
	for range 3 { // to park a task may make its lock's entry due
		if pending && x.fromPending(q, answers) || !pending && x.fromReady(q, answers) {
			*turn = !pending
			x.countTurns(q, pending)
			return true
		}
		pending = !pending
	}
	return false
}

// countTurns counts how often in a row the ready set or pending was not served although it could have been.
func (x *script) countTurns(q uint8, fromPending bool) {
	s, queue := x.s, &x.s.Queues[q]
	if !x.Turns {
		return
	}
	ready := false
	for r, score := range queue.Ready {
		ready = ready || score.due() && s.Locks[r].Token == free && x.startable(s, q, uint8(r))
	}
	pending := slices.ContainsFunc(queue.Pending[:], func(id ID) bool {
		return id != 0 && (!s.task(id).Known || !slices.ContainsFunc(x.Tasks[id-1].Locks(), func(r uint8) bool { return s.Locks[r] != Lock{} }))
	})
	count, other, could := &queue.PassedReady, &queue.PassedPending, ready
	if !fromPending {
		count, other, could = other, count, pending
	}
	if *other = 0; could {
		*count++
	} else {
		*count = 0
	}
}

// fair notes whether a resource is served before another one that was ready longer.
func (x *script) fair(q, r uint8) {
	s, queue := x.s, &x.s.Queues[q]
	for other, score := range queue.Ready {
		if score.due() && queue.Since[other] < queue.Since[r] && s.Locks[other].Token == free && x.startable(s, q, uint8(other)) {
			s.Unfair = x.Turns
		}
	}
}

// fromReady begins the first waiter of the resource that has been ready longest.
func (x *script) fromReady(q uint8, answers bool) bool {
	for range x.most(maxLooks) {
		r := x.s.Queues[q].first()
		if r == MaxResources {
			return false
		}
		began, enough := false, false
		if !x.item(func() { began, enough = x.look(q, r, answers) }) {
			x.s.Queues[q].Ready[r] = Second // what cannot be looked at does not stop the others
		}
		switch {
		case began:
			return true
		case enough:
			return false
		}
	}
	x.more = x.more || x.s.Queues[q].first() < MaxResources
	return false
}

// first returns the resource that is due first, MaxResources for none.
func (q *Queue) first() uint8 {
	first := uint8(MaxResources)
	for r, score := range q.Ready {
		if score.due() && (first == MaxResources || score < q.Ready[first]) {
			first = uint8(r)
		}
	}
	return first
}

// look looks at one entry that is due. enough says that it stays due, and that this was enough.
func (x *script) look(q, r uint8, answers bool) (began, enough bool) {
	s := x.s
	l, entry := &s.Locks[r], &s.Queues[q].Ready[r]
	if l.Token != free {
		set(x, entry, x.when(q, r, 0))
		if l.Far && x.Mistake != ClockUnseen {
			s.near(l.Token) // it has more time left than any lock is given
		}
		if x.Mistake == LookForgets {
			*entry = NoEntry
		}
		return false, false
	}
	if oldest := l.oldest(); x.Mistake == OfferForever && oldest < MaxQueues && oldest != q {
		*entry = Offer
		return false, false
	}
	for passed := 0; ; passed++ {
		id := x.head(&s.Redis, q, r)
		if id == 0 {
			x.relist(q, r, true)
			return false, false
		}
		t := s.task(id)
		waits := t.waits(r)
		switch x.Mistake {
		case HeadUnverified:
			waits = true
		case TicketUnverified:
			waits = t.Status == Pending || t.Status == Retry && t.Set == Waits
		case StoppedPassed:
			waits = waits && t.Set != Stopped
		default:
		}
		switch {
		case waits && t.holds():
			set(x, entry, Later)
			return false, false
		case waits && x.Tasks[id-1].Resource == Both && !x.takes(q, r, id):
			return false, false
		case waits:
			x.fair(q, r)
			return x.begin(id, free, t.Line[r], answers), false
		case passed == x.most(maxPassed):
			x.more = true
			if x.Mistake == PassedForLater {
				*entry = Expiry
			}
			return false, true
		}
		set(x, &t.Line[r], 0)
		x.relist(q, r, false)
	}
}

// takes reports whether the set that is first in a line may have all of its locks. If not it takes none, and somebody looks again
// within a second.
func (x *script) takes(q, r uint8, id ID) bool {
	l := &x.s.Locks[r]
	if ticket := x.s.task(id).Line[r]; l.Lines[q] != ticket {
		set(x, &l.Lines[q], ticket) // whoever has left the line without a word would be first for ever
	}
	if x.has(&x.s.Redis, id, free) && (x.passable(x.s, id, false) || x.Mistake == OneHead) {
		return true
	}
	look := Second
	if x.Mistake == BlockedForLater {
		look = Expiry
	}
	set(x, &x.s.Queues[q].Ready[r], look)
	return false
}

// relist brings what is known of a line up to date after its head has left. Whoever was looking may know that
// the lock is taken, and move the score up.
func (x *script) relist(q, r uint8, looked bool) {
	s := x.s
	l, entry, head := &s.Locks[r], &s.Queues[q].Ready[r], x.head(&s.Redis, q, r)
	ticket := uint8(0)
	if head != 0 {
		ticket = s.task(head).Line[r]
	}
	if l.Lines[q] != ticket {
		set(x, &l.Lines[q], ticket)
	}
	switch {
	case head == 0 && *entry != NoEntry:
		set(x, entry, NoEntry)
	case head != 0 && looked && l.Token != free:
		set(x, entry, x.when(q, r, ticket))
	}
}

// fromPending begins the first task of pending that may start, and parks those before it.
func (x *script) fromPending(q uint8, answers bool) bool {
	s := x.s
	for range x.most(maxParked) {
		id := s.Queues[q].Pending[0]
		if id == 0 {
			return false
		}
		t, spec := s.task(id), x.Tasks[id-1]
		if t.Status == Pending && (t.HasHeld || spec.asks() && t.Known && t.Ticket > 0) { // it starts from its place
			x.item(func() {
				set(x, &t.Set, Waits)
				x.enter(id, t.Ticket, Now)
				set(x, &t.Status, Retry)
				x.write()
				s.Queues[q].remove(id)
			})
			continue
		}
		if t.Status != Pending && x.Mistake != PopUnchecked {
			x.item(func() {
				x.write()
				s.Queues[q].remove(id) // it is somewhere else
			})
			continue
		}
		ticket := t.Ticket
		if ticket == 0 && spec.Resource != Unguarded {
			ticket = x.newTicket(id)
		}
		if !t.Known || x.has(&s.Redis, id, free) && x.alone(q, spec.Resource) {
			if x.begin(id, free, ticket, answers) {
				return true
			}
			continue
		}
		x.item(func() { x.park(id, ticket) })
	}
	x.more = x.more || s.Queues[q].Pending[0] != 0
	return false
}

// alone reports whether nobody waits for a lock. If somebody does, a pending task joins the line, also if its ticket is older.
func (x *script) alone(q, r uint8) bool {
	lines := x.s.Locks[r].Lines
	if x.Mistake == OtherLinesPassed {
		return lines[q] == 0
	}
	return lines == [MaxQueues]uint8{}
}

// newTicket returns a ticket that is later than all of a task's resources: no earlier than their last fences, and later than
// the last of their lines.
func (x *script) newTicket(id ID) (ticket uint8) {
	if x.Mistake == TicketByClock && x.s.Back {
		for n := range x.Tasks {
			t := &x.s.Tasks[n]
			t.Ticket, t.Line = later(t.Ticket), [...]uint8{later(t.Line[0]), later(t.Line[1])}
		}
		for r := range x.s.Locks {
			for q := range x.s.Locks[r].Lines {
				x.s.Locks[r].Lines[q] = later(x.s.Locks[r].Lines[q])
			}
		}
		return 1
	}
	for _, r := range x.Tasks[id-1].Locks() {
		ticket = max(ticket, x.tickets[r]+1)
	}
	for _, r := range x.Tasks[id-1].Locks() {
		x.tickets[r] = ticket
	}
	return ticket
}

// later makes room before a ticket.
func later(ticket uint8) uint8 {
	if ticket > 0 {
		ticket++
	}
	return ticket
}

// park puts a pending task into its line.
func (x *script) park(id ID, ticket uint8) {
	t, queue := x.s.task(id), &x.s.Queues[x.Tasks[id-1].Queue]
	if x.Mistake == PopsFirst {
		x.write()
		queue.remove(id)
	}
	set(x, &t.Set, Waits)
	x.enter(id, ticket, x.whenAll(id, ticket))
	x.write()
	t.Status, t.Ticket = Retry, ticket
	x.write()
	queue.remove(id)
}
