package model

// time adds what happens when time passes.
func (b *builder) time() {
	for n := range b.Resources {
		id := ID(n + 1)
		t := b.s.task(id)
		if t.In == Parked || t.In == Backoff {
			move := Move{Kind: Timer, Task: id, Resource: b.Resource(id)}
			if t.In == Parked && t.Ticket != 0 { // it is called, or else the timer fires after hours
				if b.s.Faults == 0 {
					continue
				}
				move.Kind = LastResort
			}
			b.add(move, func(s *State) Outcome {
				s.task(id).In = Pending
				appendTo(s.Queue[:], id)
				return OK
			})
		}
	}
	for r := range uint8(MaxResources) {
		l := &b.s.Locks[r]
		move := Move{Resource: r}
		switch {
		case l.Value == Reserved && b.Mistake != ReservationForever && !b.s.called(l.For):
			// A call that is not over within the grace is slow, and counts as a fault.
			move.Kind = Lapse
			b.frees(move)
		case l.Value == Held && l.By == ByDead:
			move.Kind = Expire
			b.frees(move)
		case l.Value == Held && l.By != ByRecovery && b.s.Attempts[l.By-1].Stalled:
			move.Kind = ExpireAlive
			b.frees(move)
		case l.Value == Foreign:
			move.Kind = FreeForeign
			b.frees(move)
		}
	}
	if b.s.Paused {
		b.add(Move{Kind: Resume}, func(s *State) Outcome {
			s.Paused = false
			return OK
		})
	}
}

// called reports whether a call of the reservation that stands is under way.
func (s *State) called(id ID) bool {
	for i := range s.Calls {
		if c := &s.Calls[i]; c.Task == id && c.Standing {
			return true
		}
	}
	return false
}

// frees adds the end of what a lock holds. Who holds it by then is deprived.
func (b *builder) frees(move Move) {
	b.add(move, func(s *State) Outcome {
		if l := &s.Locks[move.Resource]; l.Value == Held && l.By == ByRecovery {
			s.Recovery.Holds = false
		} else if l.Value == Held && l.By != ByDead {
			s.Attempts[l.By-1].Deprived = true
		}
		b.set(s, move.Resource, Free, 0, 0)
		return OK
	})
}

// lapsed reports whether asynq's lease of an active task is old: nobody has
// renewed it for some time. latest is the slot of its attempt, -1 when that is gone.
func (s *State) lapsed(latest int) bool { return latest < 0 || s.Attempts[latest].Stalled }

// recovery adds what brings back tasks of workers that died: our own recovery,
// and asynq's.
func (b *builder) recovery() {
	for n := range b.Resources {
		id := ID(n + 1)
		r := b.Resource(id)
		latest := b.s.latest(id)
		if b.s.task(id).In != Active || !b.s.lapsed(latest) {
			continue
		}
		off := func(s *State) {
			if latest >= 0 {
				s.Attempts[latest].Off = true
			}
		}
		b.add(Move{Kind: RecoverByAsynq, Task: id, Resource: r, Slot: uint8(max(0, latest))}, func(s *State) Outcome {
			off(s)
			s.task(id).In = Backoff
			return OK
		})
		l := &b.s.Locks[r]
		lives := l.Value == Held && l.For == id && b.Mistake != RecoveryWithoutLock
		if !b.Recovers || b.s.Recovery.Task != 0 || lives {
			continue
		}
		b.add(Move{Kind: Find, Task: id, Resource: r, Worker: elected}, func(s *State) Outcome {
			s.Recovery = Recovery{Task: id, Same: true, Holds: l.Value == Free, Keeps: l.Value == Free}
			if l.Value != Free {
				return Joined
			}
			b.set(s, r, Held, ByRecovery, 0)
			s.Locks[r].Mark = false
			s.Locks[r].Last++
			return Granted
		})
	}
	if id := b.s.Recovery.Task; id != 0 {
		b.goOn(id)
	}
}

// goOn adds the next step of a recovery that is under way.
func (b *builder) goOn(id ID) {
	move := Move{Kind: Recover, Task: id, Resource: b.Resource(id), Worker: elected}
	if b.s.Recovery.Keeps {
		move.Kind = HandOn
		b.add(move, func(s *State) Outcome {
			holds := s.Recovery.Holds
			s.Recovery.Holds, s.Recovery.Keeps = false, false
			if !holds {
				s.Recovery = Recovery{} // it makes nothing of what it does not understand
				return LostLease
			}
			b.passOn(s, move.Resource, elected)
			return OK
		})
		return
	}
	b.add(move, func(s *State) Outcome {
		latest, same := s.latest(id), s.Recovery.Same
		s.Recovery = Recovery{}
		if s.task(id).In != Active || b.Mistake != RecoveryUnchecked && (!same || !s.lapsed(latest)) {
			return Gone
		}
		if latest >= 0 {
			s.Attempts[latest].Off = true
		}
		s.task(id).In = Pending
		appendTo(s.Queue[:], id)
		return OK
	})
}
