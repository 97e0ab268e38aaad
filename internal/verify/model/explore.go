package model

import (
	"slices"

	"github.com/sidingq/siding/internal/verify/model/explore"
)

// Explore visits every state that can be reached, and checks all properties up to the first one
// that is broken.
func (m *Model) Explore() explore.Report { return explore.Run(m) }

// A Way leads through the model from its start to a step of some kind.
type Way = explore.Way[State, Move]

// Cover returns a shortest way to a step of each kind. kind names the kind of a step from s.
func (m *Model) Cover(kind func(s *State, step *Step) string) []Way {
	whole := *m
	whole.whole = true
	return explore.Cover(&whole, kind)
}

// Canonical implements [explore.Model].
func (m *Model) Canonical(s State) State {
	if !m.whole {
		m.prune(&s)
	}
	return m.canonical(s)
}

// Idle implements [explore.Model].
func (m *Model) Idle(s *State) string {
	if s.Faults == m.Faults && s.waiting() {
		return "timers: nothing went wrong, and only a timer or the sweeper brings a waiting task back"
	}
	return ""
}

// Goals implements [explore.Model]. The goal leaves out further faults, and the fallback times of
// waiters: it is what comes within seconds when nothing more goes wrong. Steps that finish a task leave
// no way back, as only a fault brings a task back.
func (m *Model) Goals() []explore.Goal[State] {
	goal := explore.Goal[State]{Property: "hope: from here not all tasks can finish any more", Reached: (*State).Final}
	if !m.Symmetric {
		goal.Fair = "progress: from here steps can go on for ever, fairly, and no task finishes"
	}
	return []explore.Goal[State]{goal}
}

// Final reports whether all is over.
func (s *State) Final() bool {
	for i := range s.Tasks {
		if !s.Tasks[i].finished() {
			return false
		}
	}
	return s.Attempts == [maxAttempts]Attempt{} && s.Wakers == [maxWakers]Waker{} && s.Recovery == Recovery{} && s.Loss == Loss{}
}

// waiting reports whether a task is parked, or is prefetched and has not started.
func (s *State) waiting() bool {
	return slices.ContainsFunc(s.Tasks[:], func(t Task) bool { return t.In == Parked }) ||
		slices.ContainsFunc(s.Attempts[:], func(a Attempt) bool { return a.Prefetched })
}

// actor returns who or what makes a move. A run is fair if no actor stands still for ever that
// could move at any time from some point on.
func actor(s *State, m Move) uint8 {
	const perTask, perResource = 8, 4
	const others = MaxTasks*perTask + MaxResources*perResource
	task, resource := uint8(m.Task-1)*perTask, MaxTasks*perTask+m.Resource*perResource
	switch m.Kind {
	case Acquire, Park, Write, Release, Acknowledge, Finish, Requeue, GiveBack, Rejoin:
		return task + flags(s.Attempts[m.Slot].Latest)
	case Wake, Confirm, Leave, Skip:
		return task + 2 + flags(s.Wakers[m.Slot].Standing)
	case Timer:
		return task + 4
	case RecoverByAsynq:
		return task + 5
	case Find:
		return task + 6
	case Miss, Enlist:
		return task + 7
	case ExpireReservation:
		return resource
	case Expire:
		return resource + 1
	case FreeForeign:
		return resource + 2
	case Sweep:
		return resource + 3
	case Dequeue:
		return others
	case Recover, HandOff:
		return others + 1
	case Resume:
		return others + 2
	case Restore:
		return others + 3
	default:
		return explore.Nobody
	}
}
