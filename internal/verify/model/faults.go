package model

import "slices"

// faults adds what may go wrong.
func (b *builder) faults() {
	for w := range uint8(elected + 1) {
		if b.s.works(w) {
			b.may(Crash, Move{Worker: w})
		}
	}
	for i := range b.s.Attempts {
		if a := &b.s.Attempts[i]; a.Task != 0 {
			b.attemptFaults(b.of(a.Task, i, a.Worker), a)
		}
	}
	for i, c := range b.s.Wakers {
		if c.Task != 0 {
			b.may(GiveUp, b.of(c.Task, i, c.Worker))
		}
	}
	for n := range b.Resources {
		b.operator(ID(n + 1))
	}
	if !b.s.Paused {
		b.may(Pause, Move{})
	}
	for r := range uint8(MaxResources) {
		if slices.Contains(b.Resources, r) {
			b.lockFaults(r)
		}
	}
}

// works reports whether worker w has something under way.
func (s *State) works(w uint8) bool {
	return w == elected && (s.Recovery.Task != 0 || s.Loss.Task != 0) ||
		slices.ContainsFunc(s.Attempts[:], func(a Attempt) bool { return a.Task != 0 && a.Worker == w }) ||
		slices.ContainsFunc(s.Wakers[:], func(c Waker) bool { return c.Task != 0 && c.Worker == w })
}

// attemptFaults adds what may happen to an attempt.
func (b *builder) attemptFaults(move Move, a *Attempt) {
	if !a.Stalled {
		b.may(Stall, move)
	}
	if a.Prefetched {
		// The result is that of the script that prefetched the task. A shutdown is a Requeue.
		b.may(LoseResult, move)
	} else if a.Latest && b.s.task(a.Task).In == Active {
		b.may(Shutdown, move)
	}
	if a.Phase == Wrote && !a.Rejoins && b.s.Locks[move.Resource].heldBy(move.Slot) {
		b.may(LoseRelease, move)
	}
}

// operator adds what somebody may do in the dashboard. The dashboard cannot touch active tasks.
// Running a task that is parked or in its back-off ends its wait.
func (b *builder) operator(id ID) {
	switch b.s.task(id).In {
	case Pending, Parked, Backoff:
		b.may(Delete, Move{Task: id})
		b.may(Archive, Move{Task: id})
	case Archived:
		b.may(Run, Move{Task: id})
	default: // there is nothing to do
	}
}

// lockFaults adds what may happen to a lock.
func (b *builder) lockFaults(r uint8) {
	l, move := &b.s.Locks[r], Move{Resource: r}
	switch {
	case l.Value == Free:
		b.may(TakeForeign, move)
	case l.Value == Reserved && b.s.waking(l.For) && b.Mistake != ReservationForever:
		b.may(ExpireReservationEarly, move)
	case l.Value == Held:
		b.may(DeleteLock, move)
	}
}
