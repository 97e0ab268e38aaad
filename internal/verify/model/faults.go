package model

import "slices"

// faults adds what may go wrong.
func (b *builder) faults() {
	for w := range uint8(elected + 1) {
		b.crash(w)
	}
	for i := range b.s.Attempts {
		b.attemptFaults(i)
	}
	for i, c := range b.s.Calls {
		if c.Task != 0 {
			b.add(Move{Kind: GiveUp, Task: c.Task, Slot: uint8(i), Resource: b.Resource(c.Task), Worker: c.Worker}, func(s *State) Outcome {
				s.Calls[i] = Call{}
				return OK
			})
		}
	}
	for n := range b.Resources {
		b.operator(ID(n + 1))
	}
	if !b.s.Paused {
		b.add(Move{Kind: Pause}, func(s *State) Outcome {
			s.Paused = true
			return OK
		})
	}
	for r := range uint8(MaxResources) {
		if slices.Contains(b.Resources, r) {
			b.lockFaults(r)
		}
	}
}

// crash adds the death of worker w, with all that it has under way.
func (b *builder) crash(w uint8) {
	some := w == elected && (b.s.Recovery.Task != 0 || b.s.Loss.Task != 0)
	for i := range b.s.Attempts {
		some = some || b.s.Attempts[i].Task != 0 && b.s.Attempts[i].Worker == w
	}
	for i := range b.s.Calls {
		some = some || b.s.Calls[i].Task != 0 && b.s.Calls[i].Worker == w
	}
	if !some {
		return
	}
	b.add(Move{Kind: Crash, Worker: w}, func(s *State) Outcome {
		for i := range s.Attempts {
			if a := &s.Attempts[i]; a.Task != 0 && a.Worker == w {
				s.forget(i)
			}
		}
		for i := range s.Calls {
			if c := &s.Calls[i]; c.Task != 0 && c.Worker == w {
				*c = Call{}
			}
		}
		if w == elected {
			s.Loss = Loss{}
		}
		if w == elected && s.Recovery.Task != 0 {
			if s.Recovery.Holds {
				s.Locks[b.Resource(s.Recovery.Task)].By = ByDead
			}
			s.Recovery = Recovery{}
		}
		return OK
	})
}

// attemptFaults adds what may happen to an attempt.
func (b *builder) attemptFaults(i int) {
	a := &b.s.Attempts[i]
	if a.Task == 0 {
		return
	}
	move := Move{Task: a.Task, Slot: uint8(i), Resource: b.Resource(a.Task), Worker: a.Worker}
	if !a.Stalled {
		move.Kind = Stall
		b.add(move, func(s *State) Outcome {
			s.Attempts[i].Stalled = true
			return OK
		})
	}
	if a.Ahead {
		// The answer is that of the script that has taken the task. A shutdown is PutBack.
		move.Kind = LoseAnswer
		b.end(move, func(*State, *Attempt) Outcome { return OK })
	} else if a.Latest && b.s.task(a.Task).In == Active {
		move.Kind = Shutdown
		b.add(move, func(s *State) Outcome {
			b.requeue(s, &s.Attempts[i])
			return OK
		})
	}
	if l := &b.s.Locks[move.Resource]; a.Phase == Wrote && !a.Back && l.Value == Held && l.By == uint8(i+1) {
		move.Kind = LoseRelease
		b.add(move, func(s *State) Outcome {
			s.Attempts[i].Phase, s.Locks[move.Resource].By = Succeeded, ByDead
			return OK
		})
	}
}

// operator adds what somebody may do in the dashboard. What is active cannot be
// touched there. To run a waiting task is what its timer does.
func (b *builder) operator(id ID) {
	t := b.s.task(id)
	put := func(kind Kind, in Place) {
		b.add(Move{Kind: kind, Task: id}, func(s *State) Outcome {
			remove(s.Queue[:], id)
			s.task(id).In = in
			switch in {
			case Pending:
				appendTo(s.Queue[:], id)
			case Deleted:
				s.erase(id)
			default:
			}
			return OK
		})
	}
	switch t.In {
	case Pending, Parked, Backoff:
		put(Delete, Deleted)
		put(Archive, Archived)
	case Archived:
		put(Run, Pending)
	default: // there is nothing to do
	}
}

// lockFaults adds what may happen to a lock.
func (b *builder) lockFaults(r uint8) {
	l := &b.s.Locks[r]
	move := Move{Resource: r}
	switch l.Value {
	case Free:
		move.Kind = TakeForeign
		b.add(move, func(s *State) Outcome {
			b.set(s, r, Foreign, 0, 0)
			return OK
		})
	case Reserved:
		if b.s.called(l.For) && b.Mistake != ReservationForever {
			move.Kind = LapseEarly
			b.frees(move)
		}
	case Held:
		move.Kind = DeleteLock
		b.frees(move)
	case Foreign: // it frees the lock at any time as it is
	}
}
