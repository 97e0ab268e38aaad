// Package policies is a model of what tasks do that find their lock busy, and that have a policy or a
// priority. Each call of such a task is a step of its own, and so are the wake-ups, the hand-offs and
// the end. A worker may die between any two of them, or an answer may be lost. The lock itself is that of
// the parent package, with one holder at a time.
//
// [Model.Explore] visits every state and looks for
//
//   - a task that was dropped or replaced, and no equal one has started since it came, although nobody
//     deleted the other one, and that one did not wait for too long later;
//   - of two tasks that waited together and replace each other, the earlier one that runs last, or the later
//     one that is deleted; or a task that is deleted though it was woken or is at work;
//   - a task that is rejected for the lock that is reserved for it;
//   - a task that runs although it has waited too long, or ends before that or while it is at work; a task
//     that takes over a position whose task has waited too long;
//   - a task that ends twice;
//   - a task that passes one of its own level, one of a higher level within its head start, or one that
//     came earlier by more than the head start; a worker that waits and passes an earlier one;
//   - more parked tasks than a MaxWaiting allows, or than one more after their workers have waited, though
//     nothing went wrong;
//   - a waiting task, or a worker that waits, which only time or the sweeper helps though nothing went
//     wrong;
//   - a state from which not all tasks can end.
//
// A finding comes with a shortest way there, in words. The [Mistake]s show that the model finds mistakes.
package policies

import (
	"slices"

	"github.com/sidingq/siding/internal/verify/model/explore"
)

// An OnBusy is queue.OnBusy.
type OnBusy uint8

// What a task does that finds the lock busy. Tasks that coalesce, or that replace, are equal.
const (
	Park OnBusy = iota
	Wait        // at work, then it parks
	Reject
	Coalesce
	Replace
)

// A Policy is that of a task. A level of priority is a head start of one and a half ticks.
type Policy struct {
	OnBusy     OnBusy
	MaxWait    uint8 // in ticks; 0 for no end
	MaxWaiting uint8
	UseRetries bool  // it has one
	Priority   uint8 // 0 or 1
}

// A Model is a lock that another program holds at first, and some tasks.
type Model struct {
	Tasks   []Policy
	Faults  uint8 // that happen in each run at most
	Ticks   uint8 // of time that pass at most; one more passes with each task that a worker takes
	Mistake Mistake
}

// A Step is a call or an event, and the state after it.
type Step = explore.Step[State, explore.Words]

// Explore visits every state that can be reached, up to the first one that breaks a property.
func (m *Model) Explore() explore.Report { return explore.Run(m) }

// Start implements [explore.Model].
func (m *Model) Start() State {
	s := State{By: outsider, Clock: headStart, Faults: m.Faults, Ticks: m.Ticks}
	for n := len(m.Tasks); n < MaxTasks; n++ {
		s.Tasks[n].Phase, s.Tasks[n].End = ended, done
	}
	return s
}

// Canonical implements [explore.Model]. It forgets what no step and no property will look at.
func (m *Model) Canonical(s State) State {
	for n := range s.Tasks {
		t := &s.Tasks[n]
		l := local{Phase: t.Phase, Came: t.Came, Waited: t.Waited, Missed: t.Missed}
		switch t.Phase {
		case asked:
			l.At = t.At
		case meeting, clearing:
			if l = t.local; l.Equal == 0 {
				l.EqualAt, l.EqualIn, l.Older = 0, 0, false
			}
		case met:
			l.At, l.Gone, l.Deleted, l.Gets, l.GetsIn = t.At, t.Gone, t.Deleted, t.Gets, t.GetsIn
		case parking:
			l = local{Phase: parking, At: t.At}
		case dropped, rejected, late, ended, pending, parked:
			l.Came = 0
		default: // it needs to know when it came
		}
		t.local = l
		if n < len(m.Tasks) && !m.equals(id(n+1)) {
			t.Heard, t.Ran = false, false
		}
		if t.Phase == ended {
			crashed := t.First != t.Taken
			t.First, t.Taken, t.Known, t.Waits, t.Retried = 1, 1, false, false, false
			if crashed && t.End == refused {
				t.Taken = 2
			}
			if t.End != coalesced && t.End != replaced {
				t.Heard, t.Kept = false, false
			}
		}
	}
	return s
}

// Idle implements [explore.Model].
func (m *Model) Idle(s *State) string {
	if s.Faults == m.Faults && slices.ContainsFunc(s.Tasks[:], func(t task) bool { return t.Phase == parked || t.Phase == waiting }) {
		return "idle: nothing went wrong, and only time or the sweeper helps one who waits"
	}
	return ""
}

// Goals implements [explore.Model].
func (m *Model) Goals() []explore.Goal[State] {
	return []explore.Goal[State]{{Property: "hope: from here not all tasks can end any more", Reached: (*State).final}}
}

// final reports whether all tasks have ended.
func (s *State) final() bool {
	return !slices.ContainsFunc(s.Tasks[:], func(t task) bool { return t.Phase != ended })
}

func (m *Model) policy(i id) *Policy { return &m.Tasks[i-1] }

// equals reports whether a task has equals.
func (m *Model) equals(i id) bool { return m.policy(i).OnBusy >= Coalesce }

const headStart = 3 // of a level, in half ticks

// headStart returns how much earlier the priority of a task has it come, in half ticks.
func (m *Model) headStart(i id) uint8 {
	if m.Mistake == LevelIgnored {
		return 0
	}
	return headStart * m.policy(i).Priority
}

// ticket returns the ticket of a task that came at a time, and came the time of a ticket.
func (m *Model) ticket(i id, came uint8) uint8 {
	if m.Mistake == StrictPriority {
		return 2*came + 40*(1-m.policy(i).Priority)
	}
	return 2*came + headStart - m.headStart(i)
}

func (m *Model) came(i id, ticket uint8) uint8 {
	if m.Mistake == StrictPriority {
		return (ticket - 40*(1-m.policy(i).Priority)) / 2
	}
	return (ticket + m.headStart(i) - headStart) / 2
}

// overdue reports whether a task that came at a time has waited too long.
func (m *Model) overdue(s *State, i id, came uint8) bool {
	most := m.policy(i).MaxWait
	return most > 0 && s.Clock > came+most
}
