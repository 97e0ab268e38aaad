package model

import (
	"slices"

	"github.com/sidingq/siding/internal/verify/model/explore"
)

// A Step is a move with its result.
type Step = explore.Step[State, Move]

// A Model is the protocol with some tasks, and a ration of faults.
type Model struct {
	Resources []uint8 // the resource of each task, in rising order
	Workers   uint8   // each runs one task at a time; at most 2
	Faults    uint8
	Failures  uint8 // of handlers
	Prefetch  uint8 // how many tasks are prefetched at most
	Recovers  bool  // the guard recovers tasks of dead workers, not asynq alone
	Only      Kind  // a fault, if no other fault is to happen
	Mistake   Mistake
	// Symmetric takes the tasks of one resource for equal, which leaves fewer states. Then nobody
	// can tell which task stands still, so progress is not judged.
	Symmetric bool

	whole bool // the states keep what has no effect any more
}

// Resource returns the resource of a task.
func (m *Model) Resource(id ID) uint8 { return m.Resources[id-1] }

// Start returns the first state: all tasks are pending.
func (m *Model) Start() State {
	s := State{Faults: m.Faults, Failures: m.Failures, Prefetch: m.Prefetch}
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
	b.wakers()
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

// may adds the step that makes a move of the kind.
func (b *builder) may(kind Kind, move Move) {
	if b.Only.fault() && kind.fault() && kind != b.Only {
		return
	}
	move.Kind = kind
	b.steps = append(b.steps, Step{Move: move, Next: *b.s})
	step := &b.steps[len(b.steps)-1]
	if kind.fault() {
		step.Next.Faults--
	}
	step.Move.Outcome = b.apply(&step.Next, move)
	step.Broken = b.broken(b.s, step)
	if b.counts(move) {
		step.Counts, step.Actor, step.AtOnce = 1, actor(b.s, move), !kind.waits() && kind.fair()
	}
}

// counts reports whether the properties of the whole graph may rely on a move. They may not rely on
// a fault, or on a move just between two steps that are a round trip apart. Examples are a scan of
// the sweeper before an attempt goes on, and a dequeue of a task before its waker starts. Such
// moves do not happen time and again.
func (b *builder) counts(m Move) bool {
	on := func(id ID) bool { return id != 0 && b.Resource(id) == m.Resource }
	switch m.Kind {
	case Sweep:
		return !slices.ContainsFunc(b.s.Attempts[:], func(a Attempt) bool { return on(a.Task) && a.prompt() })
	case Dequeue:
		return !slices.ContainsFunc(b.s.Wakers[:], func(c Waker) bool { return on(c.Task) && c.Standing && c.Stage == Waking })
	default:
		return !m.Kind.fault()
	}
}

// of returns what the moves of a task have in common, or of one of its attempts or wakers.
func (b *builder) of(id ID, slot int, worker uint8) Move {
	return Move{Task: id, Resource: b.Resource(id), Slot: uint8(slot), Worker: worker}
}

func (b *builder) workers() {
	for w := range b.Workers {
		busy := slices.ContainsFunc(b.s.Attempts[:], func(a Attempt) bool { return a.Task != 0 && a.Worker == w && !a.Off })
		if next := b.s.Queue[0]; next != 0 && !b.s.Paused && !busy {
			b.may(Dequeue, b.of(next, 0, w))
		}
	}
}

func (b *builder) attempts() {
	for i := range b.s.Attempts {
		a := &b.s.Attempts[i]
		if a.Task == 0 {
			continue
		}
		move := b.of(a.Task, i, a.Worker)
		if a.Prefetched {
			b.may(TakePrefetched, move)
			if b.Mistake != PrefetchForgotten {
				b.may(Requeue, move)
			}
		}
		switch a.Phase {
		case Taken:
			b.may(Acquire, move)
		case Busy, Lost:
			b.may(Park, move)
		case Holding:
			if !a.Prefetched {
				b.handler(move, a)
			}
		case Wrote:
			b.finish(move, a)
			b.release(Release, move, a)
		case Requeued:
			b.release(GiveBack, move, a)
		case Succeeded:
			b.finish(move, a)
			b.may(Acknowledge, move)
		case Failed:
			b.may(Acknowledge, move)
		case Regained:
			b.release(Release, move, a)
		}
	}
}

// handler adds what a handler may do before it has written.
func (b *builder) handler(move Move, a *Attempt) {
	l := &b.s.Locks[move.Resource]
	if a.Fence >= l.Seen || b.Mistake == LedgerUnfenced {
		b.may(Write, move)
	}
	switch {
	case !l.heldBy(move.Slot): // the ledger refuses, or the context has ended
		b.release(Release, move, a)
	case b.s.Failures > 0:
		b.release(Fail, move, a)
	}
}

// finish adds the step that ends an attempt and prefetches a task, unless its server shuts down.
func (b *builder) finish(move Move, a *Attempt) {
	if !a.Rejoins {
		b.may(Finish, move)
	}
}

// release adds the release of a lock, or what comes before a release.
func (b *builder) release(kind Kind, move Move, a *Attempt) {
	if a.Rejoins {
		kind = Rejoin
	}
	b.may(kind, move)
}

func (b *builder) wakers() {
	for i, c := range b.s.Wakers {
		if c.Task == 0 || c.Stage == Again && b.s.prompt(c.Task) {
			continue
		}
		kinds := [...]Kind{Waking: Wake, Again: Wake, Moving: Wake, Confirming: Confirm, Leaving: Leave, Skipping: Skip}
		b.may(kinds[c.Stage], b.of(c.Task, i, c.Worker))
	}
}

// prompt reports whether the task is active with an attempt that is one round trip away from its
// next step. A waker that tries again waits for longer than that, unless the attempt has stalled.
func (s *State) prompt(id ID) bool {
	i := s.latest(id)
	return i >= 0 && s.task(id).In == Active && s.Attempts[i].prompt()
}

// prompt reports whether the attempt is one round trip away from its next step.
func (a *Attempt) prompt() bool { return !a.Stalled && a.Phase != Holding && a.Phase != Wrote }

// sweeper adds its looks at locks for which parked tasks wait, and at those tasks.
func (b *builder) sweeper() {
	for r := range uint8(MaxResources) {
		l := &b.s.Locks[r]
		if !l.Listed || b.Mistake == NoSweeper {
			continue
		}
		brings := b.Mistake != SkippedForgotten && slices.ContainsFunc(l.Waiters[:], func(id ID) bool { return id != 0 && b.s.task(id).Skipped })
		if brings { // the queue is not paused, or was not when the sweeper asked
			b.may(Sweep, Move{Resource: r, Worker: elected, Resumed: true})
		}
		if l.Value == Free && b.s.first(r) != 0 && (!brings || b.s.Paused) {
			b.may(Sweep, Move{Resource: r, Worker: elected})
		}
	}
	if lost := b.s.Loss.Task; lost != 0 {
		b.may(Restore, b.of(lost, 0, elected))
		return
	}
	for n := range b.Resources {
		move, t := b.of(ID(n+1), 0, elected), &b.s.Tasks[n]
		switch {
		case t.In != Parked || t.Ticket == 0 || b.Mistake == LossUnseen:
		case t.Position == 0:
			b.may(Miss, move)
		case !b.s.Locks[move.Resource].Listed:
			b.may(Enlist, move)
		}
	}
}

// time adds what happens when time passes.
func (b *builder) time() {
	for n := range b.Resources {
		t, move := &b.s.Tasks[n], b.of(ID(n+1), 0, 0)
		switch {
		case t.In == Backoff, t.In == Parked && t.Ticket == 0:
			b.may(Timer, move)
		case t.In == Parked && b.s.Faults > 0: // a waker comes, or the fallback time after hours
			b.may(LastResort, move)
		}
	}
	for r := range uint8(MaxResources) {
		l, move := &b.s.Locks[r], Move{Resource: r}
		switch {
		case l.Value == Reserved && b.Mistake != ReservationForever && !b.s.waking(l.For):
			// A waker that takes longer than the hand-off timeout counts as a fault.
			b.may(ExpireReservation, move)
		case l.Value == Held && l.By == ByDead:
			b.may(Expire, move)
		case l.Value == Held && l.By != ByRecovery && b.s.Attempts[l.By-1].Stalled:
			b.may(ExpireAlive, move)
		case l.Value == Foreign:
			b.may(FreeForeign, move)
		}
	}
	if b.s.Paused {
		b.may(Resume, Move{})
	}
}

// waking reports whether a waker of the current reservation is under way.
func (s *State) waking(id ID) bool {
	return slices.ContainsFunc(s.Wakers[:], func(c Waker) bool { return c.Task == id && c.Standing })
}

// recovery adds the recoveries of tasks of dead workers: the guard's, and asynq's.
func (b *builder) recovery() {
	for n := range b.Resources {
		id := ID(n + 1)
		latest := b.s.latest(id)
		if b.s.Tasks[n].In != Active || !b.s.expired(latest) {
			continue
		}
		b.may(RecoverByAsynq, b.of(id, max(0, latest), 0))
		l := &b.s.Locks[b.Resource(id)]
		lives := l.Value == Held && l.For == id && b.Mistake != RecoveryWithoutLock
		if b.Recovers && b.s.Recovery.Task == 0 && !lives {
			b.may(Find, b.of(id, 0, elected))
		}
	}
	switch found := b.s.Recovery; {
	case found.Task == 0:
	case found.Unreleased:
		b.may(HandOff, b.of(found.Task, 0, elected))
	default:
		b.may(Recover, b.of(found.Task, 0, elected))
	}
}

// expired reports whether asynq's lease of an active task has expired. latest is the slot of the
// task's attempt, or -1.
func (s *State) expired(latest int) bool { return latest < 0 || s.Attempts[latest].Stalled }
