package permits

// apply makes a move.
func (m *Model) apply(s *State, move Move) {
	i, n := ID(move.N), int(move.N)-1
	switch move.Kind {
	case Ask, LoseAsk:
		m.ask(s, i, move.Rule, move.Kind == Ask)
	case Release, LoseRelease:
		m.release(s, i, move.Rule, move.Kind == Release)
	case ReleaseAgain:
		m.releaseAgain(s, i, move.Rule)
	case Wake:
		s.wake(i)
	case LoseWaker:
		s.task(i).Waker, s.task(i).Stale = false, false
	case Sweep, LoseSweep:
		s.Swept = m.rated()
		m.sweep(s, move.Rule, move.Kind == Sweep)
		s.Sweeps = s.Sweeps || move.Kind == LoseSweep
	case SweepAgain:
		m.sweepAgain(s, move.Rule)
		s.Sweeps = false
	case SweepPlanned:
		s.Plan = 0
		m.sweep(s, move.Rule, true)
	case LosePlan:
		s.Plan = 0
	case Expire, ExpireEarly:
		m.expire(s, n)
	case Crash:
		s.crash(i)
	case Stall:
		s.task(i).Stalled = true
	case Change, Unpause, ChangeRates:
		m.change(s, move)
	case Read:
		if s.Late = m.Mistake == OldRuleForever; !s.Late {
			m.read(s)
		}
	case Tick:
		m.tick(s)
	}
}

// ask is acquire_permit.lua. If answered is false, the caller does not hear of what was done, and sends
// the call again.
func (m *Model) ask(s *State, i ID, rule Rule, answered bool) {
	t := s.task(i)
	if n := s.of(Held, i); n >= 0 && !t.Answered && m.Mistake != RepeatTakesAnother {
		if answered {
			t.Phase, t.Permit, t.Answered = Holding, uint8(n), true
		}
		return
	}
	if n := s.of(Reserved, i); n >= 0 {
		used, reservations := s.used()
		later := m.nextStart(s, m.RatesOf(rule), 0)
		if (used-reservations < int(rule.Limit) || m.Mistake == StartsLowered) && (later == 0 || m.Mistake == StartsSlowed) {
			m.hold(s, i, n, m.RatesOf(rule), answered)
			return
		}
		t.Stale = t.Waker
		m.giveUp(s, n)
		if reservations == 1 && m.Mistake != RefusedIsExpired {
			s.Expired = false
		}
	}
	if !s.repeat(i, answered) {
		n, later := m.free(s, rule)
		if n >= 0 {
			_, reservations := s.used()
			first := m.first(s, i)
			if first == 0 || first == i || s.Expired && reservations == 0 || m.Mistake == JumpsQueue {
				m.hold(s, i, n, m.RatesOf(rule), answered)
				return
			}
			m.reserve(s, n, first, i, answered)
		}
		m.plan(s, later, answered)
	}
	if t.Ticket == 0 {
		for _, other := range s.Tasks {
			t.Ticket = max(t.Ticket, other.Ticket+1)
		}
	}
	t.Queued = true
	if answered {
		t.Phase = Parked
	}
}

// repeat names again the reservations that an earlier try of a call has made, if their waiters are not
// woken yet. It reports whether there is one.
func (s *State) repeat(by ID, answered bool) (found bool) {
	for n := range s.Permits {
		p := &s.Permits[n]
		if p.Value != Reserved || p.By != by || !s.task(p.Of).Queued {
			continue
		}
		found = true
		if answered {
			p.By = 0
			s.task(p.Of).Waker, s.task(p.Of).Stale = true, false
		}
	}
	return found
}

// hold grants permit n to a task.
func (m *Model) hold(s *State, i ID, n int, rates []Rate, answered bool) {
	others, reservations := s.used()
	if others-reservations == 0 || m.Mistake != FencePerPermit {
		s.Last++
	}
	t := s.task(i)
	wasReserved := s.Permits[n].Value == Reserved
	t.Stale = t.Waker
	t.Queued, t.Fence, t.Answered = false, s.Last, answered
	s.Permits[n] = Permit{Value: Held, Of: i}
	s.Mark, s.Expired, s.Gone, s.Wasted = true, false, false, 0
	if answered {
		t.Phase, t.Permit = Holding, uint8(n)
	}
	if !m.rated() {
		return
	}
	s.True[0]++
	switch {
	case m.Mistake == StartsWhenReleased, m.Mistake == StartsWhenReserved && wasReserved:
	case m.Mistake == ClockOfWorker:
		m.log(s, 1, rates)
	default:
		m.log(s, 0, rates)
	}
}

// reserve reserves permit n for a waiter. If answered is false, by does not hear of that.
func (m *Model) reserve(s *State, n int, waiter, by ID, answered bool) {
	s.Permits[n] = Permit{Value: Reserved, Of: waiter, By: by}
	s.Mark, s.Expired, s.Wasted = true, true, 0
	if answered {
		s.Permits[n].By = 0
		s.task(waiter).Waker, s.task(waiter).Stale = true, false
	}
	if m.Mistake == StartsWhenReserved && m.rated() {
		m.log(s, 0, m.RatesOf(s.Rule))
	}
}

// sweep is sweep_permits.lua: it reserves all free permits.
func (m *Model) sweep(s *State, rule Rule, answered bool) {
	n, later := m.free(s, rule)
	for n >= 0 {
		waiter := m.first(s, 0)
		if waiter == 0 {
			break
		}
		m.reserve(s, n, waiter, sweeper, answered)
		n, later = m.free(s, rule)
	}
	m.plan(s, later, answered && s.queued())
}

// sweepAgain is a sweep whose answer was lost.
func (m *Model) sweepAgain(s *State, rule Rule) {
	if !s.repeat(sweeper, true) {
		m.sweep(s, rule, true)
		return
	}
	_, later := m.free(s, rule)
	m.plan(s, later, true)
}

// wake is what a client does for the waiter of a reservation. Then the client confirms.
func (s *State) wake(i ID) {
	t := s.task(i)
	if t.Phase == Parked {
		t.Phase = Pending
	}
	if s.of(Reserved, i) >= 0 && !t.Stale {
		t.Queued = false
	}
	t.Waker, t.Stale = false, false
}

// release is release.lua. A task that has lost its permit asks for another one.
func (m *Model) release(s *State, i ID, rule Rule, answered bool) {
	t := s.task(i)
	n := int(t.Permit)
	own := s.Permits[n].Value == Held && s.Permits[n].Of == i
	if own || m.Mistake == ReleaseOfAnothers {
		m.giveUp(s, n)
		if m.Mistake == StartsWhenReleased && m.rated() {
			m.log(s, 0, m.RatesOf(rule))
		}
		if s.queued() {
			may, later := m.free(s, rule)
			first := m.first(s, 0)
			if first != 0 && m.Mistake != NoHandOff && (may >= 0 || m.Mistake == HandsOffLowered) {
				m.reserve(s, n, first, i, answered)
			}
			m.plan(s, later, answered)
		}
	}
	then := Task{Phase: Pending, Ticket: t.Ticket, Waker: t.Waker, Stale: t.Stale}
	if own { // a wake-up that is on its way finds nobody
		then = Task{Phase: Done, Ticket: t.Ticket}
		if !answered {
			then.Phase, then.Permit = Releasing, t.Permit
		}
	}
	*t = then
}

// releaseAgain is a release whose answer was lost. It reserves the permit for nobody, and says when the
// next may start.
func (m *Model) releaseAgain(s *State, i ID, rule Rule) {
	t := s.task(i)
	if m.Mistake == ReleasesTwice && s.Permits[t.Permit].Value == Held {
		m.giveUp(s, int(t.Permit))
	}
	p := s.Permits[t.Permit]
	s.repeat(i, true)
	if s.queued() && (p.Value != Reserved || p.By != i) {
		n, later := m.free(s, rule)
		if n >= 0 { // at once
			later = 1
		}
		m.plan(s, later, true)
	}
	*t = Task{Phase: Done, Ticket: t.Ticket}
}

// giveUp frees permit n. The mark goes with the last one.
func (m *Model) giveUp(s *State, n int) {
	s.Permits[n] = Permit{}
	used, _ := s.used()
	s.Mark = used > 0 && m.Mistake != MarkGoesEarly
	if used == 0 && m.Mistake == LogGoesWithLast {
		s.Starts = [maxStarts]uint8{}
	}
}

// expire is the end of a permit's time. The mark lasts as long as the last permit. The trust window
// of a holder ends before its permit.
func (m *Model) expire(s *State, n int) {
	switch p := s.Permits[n]; {
	case p.Value == Held && m.Mistake != TrustsTooLong:
		t := s.task(p.Of)
		t.Stalled = false
		if t.Phase == Holding {
			t.Phase = Lost
		}
	case p.Value == Reserved:
		s.task(p.Of).Stale = s.task(p.Of).Waker
		s.Gone = true
		if m.Mistake == ExpiredCountsForever {
			s.Extra = 1
		}
	}
	s.Permits[n] = Permit{}
	used, _ := s.used()
	s.Mark = used > 0
}

// crash ends the worker of a task. The task is requeued, and its permit belongs to nobody.
func (s *State) crash(i ID) {
	if n := s.of(Held, i); n >= 0 {
		s.Permits[n] = Permit{Value: Dead}
	}
	for n := range s.Permits {
		if s.Permits[n].By == i {
			s.Permits[n].By = 0
		}
	}
	t := s.task(i)
	*t = Task{Phase: Pending, Ticket: t.Ticket, Waker: t.Waker, Stale: t.Stale}
}

// change sets the limit or the rates. The servers read them later.
func (m *Model) change(s *State, move Move) {
	s.Old, s.Wasted = s.Rule, 0
	if move.Kind == ChangeRates {
		s.Rule.NewRates = !s.Rule.NewRates
	} else {
		s.Rule.Limit = move.N
	}
	if move.Kind != Unpause {
		s.Changes--
	}
	for n := int(s.Rule.Limit); m.Mistake == LoweringCancels && n < MaxPermits; n++ {
		m.giveUp(s, n)
	}
	if m.Mistake == PauseDropsLog && s.Rule.Limit == 0 {
		s.Starts = [maxStarts]uint8{}
	}
}
