package model

import (
	"cmp"
	"slices"
)

// run is one arrival of a step at Redis, by its number. It returns the script, if that did anything.
func (m *Model) run(s *State, server uint8, sent *Copy, way Way, aged bool, fails uint8) *script {
	x := &script{Model: m, s: s, server: server, fails: fails}
	for n, spec := range m.Tasks {
		for _, r := range spec.Locks() {
			x.tickets[r] = max(x.tickets[r], s.Tasks[n].Ticket, s.Tasks[n].Line[r])
		}
	}
	record := s.Records[server]
	fetch := !aged || m.Mistake == AgedFetches
	switch way {
	case Older: // refused, as long as the record is there
		if record == Forgotten || m.Mistake == OlderAccepted {
			x.step(sent, fetch, false)
		}
	case Dead:
		x.step(sent, fetch, false)
	default:
		switch {
		case record == Forgotten: // it does nothing, and says so
			s.Records[server], s.Servers[server].Gap, x.more = Latest, true, true
		case record != Latest || m.Mistake == RecordUnchecked:
			s.forget(server)
			x.step(sent, fetch, true)
		default:
			x.giveBack()
		}
	}
	return x
}

// giveBack is what a step that comes again does with those that have joined a batch which has lost its lock since: nobody is to pass
// them once the first has ended.
func (x *script) giveBack() {
	s := x.s
	for i := range s.Attempts {
		a := &s.Attempts[i]
		if a.Server != x.server || a.Phase != Begun || a.First == free || x.Mistake == KeepsUnheard {
			continue
		}
		if t := s.task(a.Task); t.Status == Active && t.Attempt == token(i) && !x.has(&s.Redis, a.Task, a.First) {
			x.comeBack(a.Task, Waits, Now)
			t.Lease = NoLease
		}
	}
}

// forget drops the attempts that another run of the same step has begun: the answer does not name them.
func (s *State) forget(server uint8) {
	s.each(server, func(a *Attempt) {
		if a.Phase == Begun {
			a.Phase = Gone
		}
	})
}

// CopyOf returns the step that a server sends now.
func (s *State) CopyOf(server, slots, order uint8) (sent Copy) {
	for i := range s.Attempts {
		if a := &s.Attempts[i]; a.Server == server && a.Phase == Ended {
			sent.Kinds[i] = a.Kind
		}
	}
	sent.Order, sent.Turn = order, s.Servers[server].Turn
	if !s.Servers[server].Drains {
		sent.Slots = slots - min(slots, s.working(server))
	}
	return sent
}

// Outcomes returns the attempts of which a step says something, in its order: those that have joined a batch before the first of it,
// which frees the lock, as a server may say all of them again after a failover; and the last task first.
func (s *State) Outcomes(sent *Copy) (slots []int) {
	for slot, kind := range sent.Kinds {
		if kind != NoKind {
			slots = append(slots, slot)
		}
	}
	slices.SortStableFunc(slots, func(a, b int) int {
		one, two := &s.Attempts[a], &s.Attempts[b]
		return cmp.Or(cmp.Compare(min(two.First, 1), min(one.First, 1)), cmp.Compare(two.Task, one.Task))
	})
	return slots
}

// hear is the arrival of an answer. One from the record has confirmed the tokens, and renewed them. late says that
// it was made before the server had last sent the step.
func (m *Model) hear(s *State, server uint8, replayed, late bool) {
	sv := &s.Servers[server]
	if sv.Gap && m.Mistake != NothingSentAgain {
		m.sendAgain(s, server)
	}
	sv.Gap = false
	for i := range s.Attempts {
		a := &s.Attempts[i]
		if a.Server != server {
			continue
		}
		switch {
		case a.unheard():
			m.hearBegun(s, i, replayed)
		case a.Phase == Ended && a.Result == IsLost:
			a.Kind, a.Lost = Snooze, true
		case a.Phase == Ended && a.Result == IsOver && a.Kind == More:
			a.Phase, a.Kind = Running, NoKind
		case a.Phase == Ended && a.Result == IsOver:
			a.Phase = Settled
		}
		a.Result = NoResult
	}
	sv.Waits, sv.Sent = false, Copy{}
	sv.Strange = sv.Strange && (!late || m.Mistake != OldAnswerCalms)
	if sv.Way == Same {
		sv.Way = Older
	}
	s.Records[server] = Before
	if s.Copied.Records[server] != Forgotten {
		s.Copied.Records[server]--
	}
}

// hearBegun is what a server does with an attempt that it is told of.
func (m *Model) hearBegun(s *State, slot int, replayed bool) {
	a, holder := &s.Attempts[slot], s.Holder(token(slot))
	t := s.task(a.Task)
	own := t.Status == Active && t.Attempt == token(slot)
	if a.Locked {
		own = own && m.has(&s.Redis, a.Task, holder)
		if replayed && own {
			s.near(holder)
		}
	}
	switch {
	case replayed && !own && m.Mistake != ReplayUnconfirmed:
		a.Phase = Gone
		return
	case a.Untrusted && m.Mistake != TrustFromAnswer && m.Mistake != ReplayUnconfirmed, a.First != free && s.Attempts[holder-1].Lost:
		a.Phase, a.Kind = Ended, Requeue // it never starts
	case !a.Locked && m.Tasks[a.Task-1].Resource != Unguarded && a.Phase == Begun:
		a.Phase, a.Kind = Ended, Ask
	case a.First == free && m.Tasks[a.Task-1].batches():
		a.Phase, a.Kind = Ended, More
	default:
		a.Phase, a.Kind = Running, NoKind
	}
	if own && (replayed || a.First != free) { // heartbeats renew the lock of a batch all the time, and its leases with that
		t.Lease = Runs
	}
}

// sendAgain is what a server does when it learns that steps are forgotten: it sends their outcomes again, and ends
// the attempts that they began.
func (m *Model) sendAgain(s *State, server uint8) {
	s.lose(server)
	s.each(server, func(a *Attempt) {
		if a.Phase == Settled {
			a.Phase = Ended
		}
	})
}

// lose has a server know which locks are not its own any more. What one of a batch has lost, all have.
func (s *State) lose(server uint8) {
	for i, a := range s.Attempts {
		if a.Server == server && a.Disowned {
			s.batch(s.Holder(token(i)), func(a *Attempt) { a.Lost = true })
		}
	}
}

// rest puts a server to sleep that found nothing for its free slots.
func (s *State) rest(x *script, slots uint8) {
	sv := &s.Servers[x.server]
	sv.Asleep = !x.more && !sv.Drains && !s.ended(x.server) && s.working(x.server) < slots
	sv.Alarm, sv.Popped, sv.Listens = false, false, sv.Listens || sv.Asleep
	for q := range uint8(MaxQueues) {
		for _, score := range s.Queues[q].Ready {
			sv.Alarm = sv.Alarm || sv.Asleep && x.serves(x.server, q) && score == Offer
		}
	}
}

// die ends a process. Another one takes its place.
func (s *State) die(server uint8) {
	s.each(server, func(a *Attempt) {
		if a.Phase != None {
			*a = a.gone()
		}
	})
	sv := &s.Servers[server]
	next := Server{Strange: s.Back}
	if sv.Way == Same && s.Records[server] != Latest {
		next.Stray, next.Way = sv.Stray, Dead
	}
	*sv = next
	s.Records[server] = Before
	if s.Behind {
		s.Copied.Records[server] = Before
	}
}
