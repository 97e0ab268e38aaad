package permits

// A builder collects the steps out of a state.
type builder struct {
	*Model

	s     *State
	steps []Step
}

// Steps implements [explore.Model].
func (m *Model) Steps(steps []Step, s *State) []Step {
	b := builder{m, s, steps}
	for n := range m.Tasks {
		b.task(ID(n + 1))
	}
	for n, p := range s.Permits {
		b.permit(uint8(n+1), p)
	}
	b.sweeps()
	b.operator()
	if m.rated() && s.Plan != 1 && (s.Swept || !s.queued() || m.Mistake == NoSweeper) {
		b.may(Move{Kind: Tick})
	}
	return b.steps
}

// may adds the step of a move.
func (b *builder) may(move Move) {
	if move.Kind.fault() && b.s.Faults == 0 {
		return
	}
	b.steps = append(b.steps, Step{Move: move, Next: *b.s})
	step := &b.steps[len(b.steps)-1]
	b.apply(&step.Next, move)
	step.Next.tidy()
	step.Broken = b.broken(b.s, &step.Next)
	if move.Kind.fault() {
		step.Next.Faults--
		return
	}
	if b.s.Changes != step.Next.Changes {
		return
	}
	step.AtOnce = !move.Kind.waits()
	step.Counts = hope
	if move.Kind != Release || b.s.task(ID(move.N)).Phase == Lost {
		step.Counts |= waste // a handler may take long
	}
}

// call adds the step of a call that carries the rule, for each rule that a server knows.
func (b *builder) call(kind Kind, n ID) {
	b.may(Move{Kind: kind, N: uint8(n), Rule: b.s.Rule})
	if b.s.Old != b.s.Rule {
		b.may(Move{Kind: kind, N: uint8(n), Rule: b.s.Old, Old: true})
	}
}

func (b *builder) task(i ID) {
	t := b.s.task(i)
	if t.Waker {
		b.may(Move{Kind: Wake, N: uint8(i)})
		b.may(Move{Kind: LoseWaker, N: uint8(i)})
	}
	switch t.Phase {
	case Pending:
		b.call(Ask, i)
		b.call(LoseAsk, i)
	case Holding:
		b.call(Release, i)
		b.call(LoseRelease, i)
		b.may(Move{Kind: Crash, N: uint8(i)})
		b.may(Move{Kind: Stall, N: uint8(i)})
	case Lost:
		b.call(Release, i)
	case Releasing:
		b.call(ReleaseAgain, i)
		b.may(Move{Kind: Crash, N: uint8(i)})
	default: // it waits, or is done
	}
}

func (b *builder) permit(n uint8, p Permit) {
	switch {
	case p.Value == Dead, p.Value == Held && b.s.task(p.Of).Stalled, p.Value == Reserved && !b.s.comes(p.Of):
		b.may(Move{Kind: Expire, N: n})
	case p.Value == Reserved:
		b.may(Move{Kind: ExpireEarly, N: n})
	}
}

// comes reports whether a client is about to wake the waiter of a reservation.
func (s *State) comes(i ID) bool { return s.task(i).Waker && !s.task(i).Stale }

// queued reports whether somebody is in the wait queue.
func (s *State) queued() bool {
	for _, t := range s.Tasks {
		if t.Queued {
			return true
		}
	}
	return false
}

// sweeps adds the sweeps that change something.
func (b *builder) sweeps() {
	s := b.s
	if s.Sweeps {
		b.call(SweepAgain, 0)
	}
	if s.Plan == 1 {
		b.call(SweepPlanned, 0)
	}
	if s.Plan > 0 {
		b.may(Move{Kind: LosePlan})
	}
	used, _ := s.used()
	if b.Mistake == NoSweeper || used > 0 && b.Mistake == SweepsOnce || b.first(s, 0) == 0 {
		if b.rated() && !s.Swept && s.queued() && b.Mistake != NoSweeper {
			b.may(Move{Kind: Sweep})
		}
		return
	}
	rules := []Rule{s.Rule, s.Old}
	for n, rule := range rules {
		if n > 0 && rule == rules[0] {
			return
		}
		may, _ := b.free(s, rule)
		move := Move{Kind: Sweep, Rule: rule, Old: n > 0}
		if may >= 0 || b.rated() && !s.Swept {
			b.may(move)
		}
		if move.Kind = LoseSweep; may >= 0 && !s.Sweeps {
			b.may(move)
		}
	}
}

// operator adds what an operator does, who resumes what is paused.
func (b *builder) operator() {
	s := b.s
	if s.Old != s.Rule {
		if !s.Late {
			b.may(Move{Kind: Read})
		}
		return
	}
	for limit := range uint8(MaxPermits + 1) {
		if limit != s.Rule.Limit && s.Changes > 0 {
			b.may(Move{Kind: Change, N: limit})
		}
	}
	if len(b.NewRates) > 0 && s.Changes > 0 {
		b.may(Move{Kind: ChangeRates})
	}
	if s.Rule.Limit == 0 {
		b.may(Move{Kind: Unpause, N: 1})
	}
}
