package model

// apply makes a move. It reports whether it is one.
func (m *Model) apply(s *State, move Move) bool {
	server := move.Server
	sv, queue, l := &s.Servers[server], &s.Queues[move.Queue], &s.Locks[move.Resource]
	switch move.Event {
	case Step, StepFails:
		sent := s.CopyOf(server, m.Servers[server].Slots, move.Queue)
		x := m.run(s, server, &sent, NoCopy, false, move.N)
		m.hear(s, server, false, false)
		s.rest(x, m.Servers[server].Slots)
		return move.Event == Step || x.failed
	case StepUnheard, StepDelayed:
		sv.Sent = s.CopyOf(server, m.Servers[server].Slots, move.Queue)
		sv.Waits, sv.Asleep, sv.Alarm, sv.Popped = true, false, false, false
		if move.Event == StepUnheard {
			m.run(s, server, &sv.Sent, NoCopy, false, 0)
		} else {
			sv.Stray, sv.Way = sv.Sent, Same
		}
	case Resend:
		replayed := s.Records[server] == Latest
		m.run(s, server, &sv.Sent, NoCopy, false, 0)
		m.hear(s, server, replayed, replayed)
	case HearLate:
		m.hear(s, server, false, true)
	case Arrive, ArriveAged:
		stray, way := sv.Stray, sv.Way
		sv.Stray, sv.Way = Copy{}, NoCopy
		m.run(s, server, &stray, way, move.Event == ArriveAged, 0)
	case HandlerEnds:
		a := &s.Attempts[move.N]
		if a.Phase, a.Kind = Ended, move.Kind; move.Kind != Succeed {
			s.Failures--
		}
	case Wake:
		queue.Notify, sv.Asleep, sv.Alarm, sv.Listens = false, false, false, false
		sv.Popped = (sv.Drains || s.working(server) >= m.Servers[server].Slots) && m.Mistake != PoppedForgotten
	case SecondPasses:
		sv.Asleep, sv.Alarm, sv.Listens = false, false, false
	case WindowEnds:
		s.each(server, func(a *Attempt) { a.Untrusted = a.Untrusted || a.ages() })
	case Heartbeat:
		s.lose(server)
	case Crash:
		s.die(server)
	case CutOff:
		sv.CutOff = true
	case Drain:
		sv.Drains, sv.Asleep, sv.Alarm = true, false, false
	case Continue:
		m.resume(s, server)
	case Unseen:
		queue.Seen = false
	case Pause:
		queue.Paused = true
	case Unpause:
		queue.Paused = false
	case ForeignTakes:
		l.take(Foreign)
	case ForeignLeaves:
		l.Token = free
	case LockerTakes:
		l.take(locker)
	case LockerLeaves:
		if l.Token = free; m.Mistake != LockerUnmarked {
			x := &script{Model: m, s: s}
			x.release(move.Resource, MaxQueues)
		}
	case Revoke:
		l.Revoked = true
		s.batch(l.Token, func(a *Attempt) { a.Disowned = true })
	case Expire:
		m.expire(s, move.Resource)
	case EntryDue:
		m.entryDue(s, move.Queue, move.Resource)
		m.wakeAll(s, move.Queue)
	case OfferEnds:
		m.offerEnds(s, move.Resource)
	case Upkeep:
		m.upkeep(s)
	case Evict:
		m.evict(s, move)
	case ClockBack:
		m.stepBack(s)
	case ReplicaStops:
		s.Copied, s.Behind = s.Redis, true
	case Failover:
		m.failOver(s)
	default:
		m.taskEvent(s, move)
	}
	return true
}

// taskEvent makes a move of one task.
func (m *Model) taskEvent(s *State, move Move) {
	t, queue := s.task(move.Task), &s.Queues[move.Queue]
	switch move.Event {
	case Enqueue, EnqueueAgain:
		*t = Task{Status: Pending, Known: m.Tasks[move.Task-1].Resource != Unguarded && !m.Tasks[move.Task-1].asks(), Line: t.Line, Lease: t.Lease}
		queue.push(move.Task)
		queue.Notify = queue.Notify || !m.Tasks[move.Task-1].Plain
	case LeaseEnds:
		t.Lease = Over
	case TimeComes:
		m.timeComes(s, move)
	case Retime:
		t.Set = Backoff // the score in the retry set, and not siding_until
	case Delete:
		queue.remove(move.Task)
		*t = Task{Status: Deleted, Line: t.Line, Lease: t.Lease}
	case Archive:
		queue.remove(move.Task)
		if t.Status = Archived; t.Set != Stopped { // which holds its line again
			t.Set = NotIn
		}
	case RetryHeld, SkipHeld:
		if t.Set = NotIn; move.Event == RetryHeld {
			t.Status, t.Set = Retry, Waits
			for _, r := range m.Tasks[move.Task-1].Locks() { // upkeep leaves the place of an archived task alone, and finds it now
				s.Damaged = s.Damaged || t.Line[r] != t.Ticket
			}
		}
		for _, r := range m.Tasks[move.Task-1].Locks() {
			if m.Mistake != GoneOnUnmarked {
				(&script{Model: m, s: s}).mark(move.Queue, r, 1)
			}
		}
		queue.Notify = true
	case DashboardRuns:
		if t.Status = Pending; !t.holds() {
			t.Set = NotIn
		}
		queue.push(move.Task)
	default:
		panic("ready: no such move")
	}
}

// unheard reports whether an attempt has a lock of which its server does not know.
func (a *Attempt) unheard() bool {
	return a.Phase == Begun || a.Phase == Ended && a.Result == IsGranted
}

// ages reports whether a server has to hear of an attempt in time. Heartbeats renew the lock of a batch.
func (a *Attempt) ages() bool { return a.unheard() && a.First == free }

// resume is a process that continues. What its heartbeat finds is renewed.
func (m *Model) resume(s *State, server uint8) {
	s.Servers[server].CutOff = false
	for i := range s.Attempts {
		a := &s.Attempts[i]
		if a.Server != server || a.Lost && m.Mistake != LeaseRenewedAlone || a.Phase != Running && a.Phase != Ended || a.unheard() {
			continue
		}
		t := s.task(a.Task)
		if t.Status != Active || t.Attempt != token(i) {
			continue
		}
		if !a.Locked || m.Mistake == LeaseRenewedAlone {
			t.Lease = Runs
		} else if holder := s.Holder(token(i)); m.has(&s.Redis, a.Task, holder) {
			t.Lease = Runs
			s.near(holder)
		}
	}
}

// expire ends a lock, those that its holder has got with it, and the leases of all that run under them.
func (m *Model) expire(s *State, r uint8) {
	name := s.Locks[r].Token
	s.batch(name, func(a *Attempt) {
		a.Lost = a.Lost || (a.Phase == Running || a.Phase == Ended) && m.Mistake != TrustsTooLong && (m.Mistake != LosesAlone || a.First == free)
		if t := s.task(a.Task); t.Status == Active && s.Holder(t.Attempt) == name && m.Mistake != LeaseLater {
			t.Lease = Over
		}
	})
	for r := range uint8(MaxResources) {
		if l := &s.Locks[r]; l.Token == name && !l.Far {
			l.take(free)
			for q := range uint8(MaxQueues) {
				m.entryDue(s, q, r)
				m.wakeAll(s, q)
			}
		}
	}
}

// entryDue makes an entry due whose time has come.
func (m *Model) entryDue(s *State, q, r uint8) {
	queue := &s.Queues[q]
	if entry := &queue.Ready[r]; *entry == Second || *entry == Expiry || *entry == Later {
		queue.due(r)
	}
}

// wakeAll wakes the servers of a queue: they sleep for a second at most.
func (m *Model) wakeAll(s *State, q uint8) {
	for n := range s.Servers {
		if m.serves(uint8(n), q) {
			s.Servers[n].Asleep, s.Servers[n].Alarm = false, false
		}
	}
}

// offerEnds ends the 50 ms after a release. Servers that know of that look.
func (m *Model) offerEnds(s *State, r uint8) {
	s.Locks[r].Fresh = false
	for q := range uint8(MaxQueues) {
		queue := &s.Queues[q]
		if queue.Ready[r] != Offer {
			continue
		}
		queue.due(r)
		for n := range s.Servers {
			if sv := &s.Servers[n]; m.serves(uint8(n), q) && sv.Alarm {
				sv.Asleep, sv.Alarm = false, false
			}
		}
	}
}

// timeComes is the forwarder at the time at which a task may run again.
func (m *Model) timeComes(s *State, move Move) {
	t, queue := s.task(move.Task), &s.Queues[move.Queue]
	if t.Set == Held {
		t.Set = Waits
		for _, r := range m.Tasks[move.Task-1].Locks() {
			m.entryDue(s, move.Queue, r)
		}
		m.wakeAll(s, move.Queue)
		return
	}
	t.Status, t.Set = Pending, NotIn
	queue.push(move.Task)
	queue.Notify = true
}

// upkeep rebuilds lines, lists of lines and ready sets by the hashes and the retry set.
func (m *Model) upkeep(s *State) {
	x := &script{Model: m, s: s}
	var rebuilt [MaxQueues][MaxResources]bool // so that a release may not have marked it
	for n, spec := range m.Tasks {
		t := &s.Tasks[n]
		if !t.Known || t.Status != Retry || t.Set != Waits && t.Set != Held {
			continue
		}
		for _, r := range spec.Locks() {
			rebuilt[spec.Queue][r] = rebuilt[spec.Queue][r] || t.Line[r] == 0
			t.Line[r] = t.Ticket
		}
	}
	for q := range uint8(MaxQueues) {
		for r := range uint8(MaxResources) {
			head, line := m.head(&s.Redis, q, r), uint8(0)
			if head != 0 {
				line = s.task(head).Line[r]
			}
			rebuilt[q][r] = rebuilt[q][r] || s.Locks[r].Lines[q] != line
			s.Locks[r].Lines[q] = line
			if head != 0 && (rebuilt[q][r] || s.Queues[q].Ready[r] == NoEntry) {
				x.mark(q, r, 1)
			}
		}
		m.wakeAll(s, q)
	}
	s.Damaged = false
}

// evict loses a key.
func (m *Model) evict(s *State, move Move) {
	s.Damaged = true
	switch move.N {
	case 0:
		s.Queues[move.Queue].Ready = [MaxResources]Score{}
	case 1:
		for n := range m.Tasks {
			if m.Tasks[n].Queue == move.Queue {
				s.Tasks[n].Line[move.Resource] = 0
			}
		}
	default:
		s.Locks[move.Resource].Lines = [MaxQueues]uint8{}
	}
}

// stepBack is a step of Redis' clock. What is not renewed lasts longer by it.
func (m *Model) stepBack(s *State) {
	s.Back = true
	for q := range s.Queues {
		for r, score := range s.Queues[q].Ready {
			if score != NoEntry {
				s.Queues[q].Ready[r] = Never
			}
		}
	}
	for r := range s.Locks {
		l := &s.Locks[r]
		l.Fresh = false
		l.Far = l.attempt() && !s.renewed(l.Token)
	}
	for n := range m.Tasks {
		if t := &s.Tasks[n]; t.Lease != NoLease && !s.renewed(t.Attempt) {
			t.Lease = Far
		}
	}
	for n := range s.Servers {
		s.Servers[n].Strange, s.Servers[n].Alarm = true, false
	}
}

// renewed reports whether heartbeats renew the lock and the lease of an attempt.
func (s *State) renewed(attempt uint8) bool {
	if attempt == free {
		return false
	}
	a := &s.Attempts[attempt-1]
	return (a.Phase == Running || a.Phase == Ended) && !a.unheard() && !a.Lost && !a.Disowned && !s.Servers[a.Server].CutOff
}

// failOver makes a replica the master that has not seen the last writes.
func (m *Model) failOver(s *State) {
	s.Redis, s.Copied, s.Behind, s.Failed = s.Copied, Redis{}, false, true
	for i := range s.Attempts {
		a := &s.Attempts[i]
		forgotten := s.Records[a.Server] != Latest
		switch {
		case a.Phase == Begun && forgotten:
			a.Phase = Gone
		case a.Phase == Running || a.Phase == Ended:
			if forgotten {
				a.Result = NoResult
				a.Locked = a.Locked && a.Kind != Ask
			}
			t := s.task(a.Task)
			a.Disowned = t.Status != Active || t.Attempt != token(i) || a.Locked && !m.has(&s.Redis, a.Task, s.Holder(token(i)))
		}
	}
}
