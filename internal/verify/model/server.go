package model

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
		}
	}
	return x
}

// forget drops the attempts that another run of the same step has begun: the answer does not name them.
func (s *State) forget(server uint8) {
	s.each(server, func(a *Attempt) {
		if a.Phase == Begun {
			a.Phase = Gone
		}
	})
}

// copyOf returns the step that a server sends now.
func (s *State) copyOf(server, slots, order uint8) (sent Copy) {
	for i := range s.Attempts {
		if a := &s.Attempts[i]; a.Server == server && a.Phase == Ended {
			sent.Kinds[i] = a.Kind
		}
	}
	sent.Order = order
	if !s.Servers[server].Drains {
		sent.Slots = slots - min(slots, s.working(server))
	}
	return sent
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
	a := &s.Attempts[slot]
	t := s.task(a.Task)
	own := t.Status == Active && t.Attempt == token(slot)
	if a.Locked {
		own = own && m.has(&s.Redis, a.Task, token(slot))
		if replayed && own {
			s.near(token(slot))
		}
	}
	switch {
	case replayed && !own && m.Mistake != ReplayUnconfirmed:
		a.Phase = Gone
		return
	case a.Untrusted && m.Mistake != TrustFromAnswer && m.Mistake != ReplayUnconfirmed:
		a.Phase, a.Kind = Ended, Requeue // it never starts
	case !a.Locked && m.Tasks[a.Task-1].Resource != Unguarded && a.Phase == Begun:
		a.Phase, a.Kind = Ended, Ask
	default:
		a.Phase, a.Kind = Running, NoKind
	}
	if replayed && own {
		t.Lease = Runs
	}
}

// sendAgain is what a server does when it learns that steps are forgotten: it sends their outcomes again, and ends
// the attempts that they began.
func (m *Model) sendAgain(s *State, server uint8) {
	s.each(server, func(a *Attempt) {
		switch {
		case a.Phase == Settled:
			a.Phase = Ended
		case a.Disowned:
			a.Lost = true
		}
	})
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
			*a = Attempt{Task: a.Task, Server: a.Server, Phase: Gone, Kind: a.Kind, Locked: a.Locked}
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
