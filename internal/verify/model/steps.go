package model

import "slices"

// A Step is a move and what comes of it.
type Step struct {
	Move    Move
	Outcome Outcome
	Next    State
	Broken  string // the property that the step breaks
	counts  bool   // properties of the whole graph rely on it
}

func (s Step) String() string {
	if s.Outcome == OK {
		return s.Move.String()
	}
	return s.Move.String() + ": " + string(s.Outcome)
}

// A Model is the protocol with some tasks, and a ration of faults.
type Model struct {
	Resources []uint8 // the resource of each task, in rising order
	Workers   uint8   // each runs one task at a time; at most 2
	Faults    uint8
	Failures  uint8 // of handlers
	Ahead     uint8 // how many tasks are taken in advance at most
	Recovers  bool  // the fleet brings back tasks of dead workers, not asynq alone
	Only      Kind  // if it is one, the only fault that happens
	Mistake   Mistake
	// Symmetric takes tasks of one resource for the same. There are fewer states
	// then, but who stands still cannot be told: progress is not judged.
	Symmetric bool
}

// Resource returns the resource of a task.
func (m *Model) Resource(id ID) uint8 { return m.Resources[id-1] }

// Start returns the first state: all tasks are pending.
func (m *Model) Start() State {
	s := State{Faults: m.Faults, Failures: m.Failures, Ahead: m.Ahead}
	for i := range m.Resources {
		s.Queue[i] = ID(i + 1)
	}
	for i := len(m.Resources); i < MaxTasks; i++ {
		s.Tasks[i].In = Deleted
	}
	return s
}

// Steps appends all steps that are possible in s.
func (m *Model) Steps(steps []Step, s *State) []Step {
	b := builder{m, s, steps}
	b.workers()
	b.attempts()
	b.calls()
	b.sweeper()
	b.time()
	b.recovery()
	if s.Faults > 0 {
		b.faults()
	}
	return b.steps
}

// A builder collects the steps out of a state.
type builder struct {
	*Model

	s     *State
	steps []Step
}

// counts reports whether the properties of the whole graph may rely on a move. They may not on a
// fault. Nor on what comes just between two steps that are a round trip apart: that the sweeper
// looks before an attempt goes on, or a task is dequeued before a call begins. It does not happen
// time and again.
func (b *builder) counts(m Move) bool {
	on := func(id ID) bool { return id != 0 && b.Resource(id) == m.Resource }
	switch m.Kind {
	case Sweep:
		return !slices.ContainsFunc(b.s.Attempts[:], func(a Attempt) bool { return on(a.Task) && a.prompt() })
	case Dequeue:
		return !slices.ContainsFunc(b.s.Calls[:], func(c Call) bool { return on(c.Task) && c.Standing && c.Turn == Calling })
	default:
		return !m.Kind.fault()
	}
}

// add adds a step: do changes the state.
func (b *builder) add(move Move, do func(*State) Outcome) {
	if b.Only.fault() && move.Kind.fault() && move.Kind != b.Only {
		return
	}
	b.steps = append(b.steps, Step{Move: move, Next: *b.s})
	step := &b.steps[len(b.steps)-1]
	if move.Kind.fault() {
		step.Next.Faults--
	}
	step.Outcome, step.counts = do(&step.Next), b.counts(move)
	step.Broken = b.broken(b.s, step)
}

func (b *builder) workers() {
	for w := range b.Workers {
		busy := false
		for i := range b.s.Attempts {
			a := &b.s.Attempts[i]
			busy = busy || a.Task != 0 && a.Worker == w && !a.Off
		}
		if b.s.Queue[0] != 0 && !b.s.Paused && !busy {
			b.add(Move{Kind: Dequeue, Task: b.s.Queue[0], Resource: b.Resource(b.s.Queue[0]), Worker: w}, func(s *State) Outcome {
				b.dequeue(s, w)
				return OK
			})
		}
	}
}

func (b *builder) attempts() {
	for i := range b.s.Attempts {
		a := &b.s.Attempts[i]
		if a.Task == 0 {
			continue
		}
		move := Move{Task: a.Task, Slot: uint8(i), Resource: b.Resource(a.Task), Worker: a.Worker}
		if a.Ahead {
			b.ahead(move)
		}
		switch a.Phase {
		case Taken:
			move.Kind = Acquire
			b.add(move, func(s *State) Outcome { return b.acquire(s, i) })
		case Refused:
			move.Kind = Park
			b.end(move, func(s *State, a *Attempt) Outcome { return b.park(s, a, a.Ticket) })
		case Holding:
			if !a.Ahead {
				b.handler(move, a)
			}
		case Wrote:
			b.finish(move, a)
			move.Kind = Release
			b.releases(move, Succeeded)
		case Unclaimed:
			b.givesBack(move, a)
		case Succeeded:
			b.finish(move, a)
			move.Kind = Acknowledge
			b.end(move, func(s *State, a *Attempt) Outcome { return b.acknowledge(s, a, Done) })
		case Failed:
			move.Kind = Acknowledge
			b.end(move, func(s *State, a *Attempt) Outcome { return b.acknowledge(s, a, Backoff) })
		case Lost:
			move.Kind = Park
			b.end(move, func(s *State, a *Attempt) Outcome { return b.park(s, a, 0) })
		case Regained:
			move.Kind = Release
			b.releases(move, Lost)
		}
	}
}

// finish adds the step that ends an attempt and takes the next task for its worker.
func (b *builder) finish(move Move, a *Attempt) {
	if a.Back {
		return // its server shuts down
	}
	move.Kind = Finish
	b.add(move, func(s *State) Outcome { return b.Model.finish(s, int(move.Slot)) })
}

// ahead adds what may happen to an attempt whose task was taken in advance.
func (b *builder) ahead(move Move) {
	move.Kind = Begin
	b.add(move, func(s *State) Outcome {
		a := &s.Attempts[move.Slot]
		a.Ahead = false
		if a.Phase == Holding && a.Deprived { // it has lost the lock meanwhile, and asks for it again
			a.Phase, a.Fence, a.Deprived = Taken, 0, false
		}
		return OK
	})
	if b.Mistake == AheadForgotten {
		return
	}
	move.Kind = PutBack
	b.add(move, func(s *State) Outcome { return b.putBack(s, int(move.Slot)) })
}

// givesBack adds the release of a lock under which nothing was done, or before that the rejoining of
// the line.
func (b *builder) givesBack(move Move, a *Attempt) {
	if a.Back {
		move.Kind = Rejoin
		b.add(move, func(s *State) Outcome { return b.rejoin(s, int(move.Slot)) })
		return
	}
	move.Kind = GiveBack
	b.end(move, func(s *State, _ *Attempt) Outcome { return b.release(s, int(move.Slot)) })
}

// handler adds what a handler may do that has not written yet.
func (b *builder) handler(move Move, a *Attempt) {
	l := &b.s.Locks[move.Resource]
	if a.Fence >= l.Seen || b.Mistake == LedgerUnfenced {
		move.Kind = Write
		b.add(move, func(s *State) Outcome {
			a, l := &s.Attempts[move.Slot], &s.Locks[move.Resource]
			a.Phase, l.Seen = Wrote, max(l.Seen, a.Fence)
			s.task(a.Task).Effects = 1 // it is recorded by the task's id, so that a second one changes nothing
			return OK
		})
	}
	switch {
	case l.Value != Held || l.By != move.Slot+1: // refused by the ledger, or told by its context
		move.Kind = Release
		b.releases(move, Lost)
	case b.s.Failures > 0:
		move.Kind = Fail
		b.releases(move, Failed)
	}
}

// releases adds the release, after which the attempt goes on as then, or what comes before it.
func (b *builder) releases(move Move, then Phase) {
	if b.s.Attempts[move.Slot].Back {
		move.Kind = Rejoin
		b.add(move, func(s *State) Outcome { return b.rejoin(s, int(move.Slot)) })
		return
	}
	b.add(move, func(s *State) Outcome {
		outcome := b.release(s, int(move.Slot))
		if outcome == LostLease {
			then = Lost
		}
		if then == Failed {
			s.Failures--
		}
		s.Attempts[move.Slot].Phase = then
		return outcome
	})
}

// end adds the end of an attempt.
func (b *builder) end(move Move, do func(*State, *Attempt) Outcome) {
	b.add(move, func(s *State) Outcome {
		outcome := do(s, &s.Attempts[move.Slot])
		s.forget(int(move.Slot))
		return outcome
	})
}

// forget ends an attempt. A lock that it holds is nobody's from then on.
func (s *State) forget(i int) {
	for r := range s.Locks {
		if l := &s.Locks[r]; l.Value == Held && l.By == uint8(i+1) {
			l.By = ByDead
		}
	}
	s.Attempts[i] = Attempt{}
}

func (b *builder) calls() {
	for i := range b.s.Calls {
		c := b.s.Calls[i]
		if c.Task == 0 {
			continue
		}
		move := Move{Task: c.Task, Slot: uint8(i), Resource: b.Resource(c.Task), Worker: c.Worker}
		switch c.Turn {
		case Calling, Again:
			move.Kind = Promote
			if c.Turn == Calling || !b.s.prompt(c.Task) {
				b.add(move, func(s *State) Outcome { return b.call(s, &s.Calls[i]) })
			}
		case Moving:
			move.Kind = Promote
			b.add(move, func(s *State) Outcome {
				prepend(s.Queue[:], c.Task)
				s.task(c.Task).In = Pending
				s.Calls[i].Turn = Telling
				return Called
			})
		case Telling:
			move.Kind = Tell
			b.add(move, func(s *State) Outcome {
				s.Calls[i] = Call{}
				b.called(s, c)
				return OK
			})
		case Dropping:
			move.Kind = Drop
			b.add(move, func(s *State) Outcome {
				s.Calls[i] = Call{}
				b.leave(s, c)
				return OK
			})
		case Setting:
			move.Kind = SetAside
			b.add(move, func(s *State) Outcome {
				s.Calls[i] = Call{}
				b.setAside(s, c)
				return OK
			})
		}
	}
}

// sweeper adds its looks at locks for which parked tasks wait, and at those tasks.
func (b *builder) sweeper() {
	for r := range uint8(MaxResources) {
		l := &b.s.Locks[r]
		brings := b.Mistake != AsideForgotten && slices.ContainsFunc(l.Line[:], func(id ID) bool { return id != 0 && b.s.task(id).Aside })
		looks := func(resumed bool) {
			b.add(Move{Kind: Sweep, Resource: r, Worker: elected}, func(s *State) Outcome { return b.sweep(s, r, resumed) })
		}
		if !l.Listed || b.Mistake == NoSweeper {
			continue
		}
		if brings {
			looks(true) // the queue is not paused, or was not when the sweeper asked
		}
		if l.Value == Free && b.s.first(r) != 0 && (!brings || b.s.Paused) {
			looks(false)
		}
	}
	if lost := b.s.Loss; lost.Task != 0 {
		b.add(Move{Kind: Restore, Task: lost.Task, Resource: b.Resource(lost.Task), Worker: elected}, func(s *State) Outcome {
			b.restore(s)
			return OK
		})
		return
	}
	for n := range b.Resources {
		id, t := ID(n+1), &b.s.Tasks[n]
		if t.In != Parked || t.Ticket == 0 || b.Mistake == LossUnseen {
			continue
		}
		move := Move{Kind: Miss, Task: id, Resource: b.Resource(id), Worker: elected}
		switch {
		case t.InLine == 0:
			b.add(move, func(s *State) Outcome {
				s.Loss = Loss{id, t.Ticket}
				return OK
			})
		case !b.s.Locks[move.Resource].Listed:
			move.Kind = Enlist
			b.add(move, func(s *State) Outcome {
				s.Locks[move.Resource].Listed = true
				return OK
			})
		}
	}
}

// prompt reports whether the task is active under an attempt that is one round
// trip away from its next step. A call that waits for it before it looks again
// waits for longer than that, unless the attempt has stalled.
func (s *State) prompt(id ID) bool {
	i := s.latest(id)
	if i < 0 || s.task(id).In != Active {
		return false
	}
	return s.Attempts[i].prompt()
}

// prompt reports whether the attempt is one round trip away from its next step.
func (a *Attempt) prompt() bool { return !a.Stalled && a.Phase != Holding && a.Phase != Wrote }

// call is one turn of a call: what comes after a promote.
func (b *builder) call(s *State, c *Call) Outcome {
	if b.Mistake == PromoteInTwoSteps {
		if outcome := b.promotion(s, c.Task, c.Ticket); outcome == Called {
			c.Turn = Moving
			return OK
		}
	}
	outcome := b.promote(s, c.Task, c.Ticket)
	switch {
	case outcome == Called:
		c.Turn = Telling
	case outcome == Noted && b.Mistake == NotedAndForgotten, outcome == Gone && b.Mistake == GhostNotSkipped:
		*c = Call{}
	case outcome == Noted && c.Turn == Calling:
		c.Turn = Again
	case outcome == PausedQueue && b.Mistake != PausedDropped:
		c.Turn = Setting
	default:
		c.Turn = Dropping
	}
	return outcome
}
