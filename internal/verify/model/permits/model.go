// Package permits is a model of a lock with a limit and with rates: of its permits, its wait queue, its
// reservations and its log of starts. The model is small enough to try every order of the steps of a
// few tasks.
//
// Time goes by in ticks, of about a second. Within a tick the sweeper looks at the lock, and clients make
// the sweeps that are due. All else may take any time.
//
// [Model.Explore] visits every state and looks for
//
//   - a permit that is given out although the limit has none left, or more starts in a period than a
//     rate allows, as far as the log has to know of them;
//   - a task that believes it holds a permit, and does not; or one task with two permits;
//   - a fence that is not higher than all before;
//   - a permit that goes to a task while an earlier one waits;
//   - a change of the limit that takes a permit from somebody;
//   - a plain program that would find the lock free while a permit is held or reserved;
//   - a waiter that is woken for a permit which it does not get, though nothing went wrong;
//   - a free permit that only the sweeper gives to a waiting task, though nothing went wrong;
//   - a waiter that has room, by the limit and the rates, for more than a tick;
//   - a permit that stays free for as long as others hold theirs, although a task waits;
//   - a state from which not all tasks can finish.
//
// A finding comes with a shortest way there, in words. The [Mistake]s show that the model finds
// mistakes. A test of package redisstore makes the model's steps with the real scripts, and compares. The
// parent package is the model of what a lock with a limit shares with every lock.
package permits

import (
	"cmp"
	"slices"

	"github.com/sidingq/siding/internal/verify/model/explore"
)

// A Model is a lock with a limit of two at first, and some tasks that want it.
type Model struct {
	Tasks    int    // at most MaxTasks
	Rates    []Rate // of starts
	NewRates []Rate // what an operator may change the rates to, and back; nil for no change of rates
	Faults   uint8  // that happen in each run at most
	Changes  uint8  // of the rule, likewise
	Mistake  Mistake
}

// A Rate is so many starts, three at most, in a period of so many ticks, six at most.
type Rate struct{ Starts, Period uint8 }

// A Step is a move, and the state after it.
type Step = explore.Step[State, Move]

// Explore visits every state that can be reached, up to the first one that breaks a property.
func (m *Model) Explore() explore.Report { return explore.Run(m) }

// Start implements [explore.Model].
func (m *Model) Start() State {
	s := State{Rule: Rule{Limit: MaxPermits}, Old: Rule{Limit: MaxPermits}, Known: maxPeriod, Faults: m.Faults, Changes: m.Changes}
	for n := m.Tasks; n < MaxTasks; n++ {
		s.Tasks[n].Phase = Done
	}
	return s
}

// Goals implements [explore.Model].
func (m *Model) Goals() []explore.Goal[State] {
	return []explore.Goal[State]{
		{Property: "hope: from here not all tasks can finish any more", Reached: (*State).Final},
		{Property: "waste: a permit stays free although a task waits, as long as others hold theirs", Reached: (*State).settled},
	}
}

// The goals for which steps count.
const (
	hope uint8 = 1 << iota
	waste
)

// Idle implements [explore.Model]. A client that sweeps the lock at the time of the next start is no
// idle one.
func (m *Model) Idle(s *State) string {
	if m.fine(s) && !s.Final() && s.Plan == 0 {
		return "idle: nothing went wrong, and only the sweeper brings a waiting task back"
	}
	return ""
}

// Final reports whether all tasks are done.
func (s *State) Final() bool {
	return !slices.ContainsFunc(s.Tasks[:], func(t Task) bool { return t.Phase != Done })
}

// settled reports whether every permit that the limit allows is in use, or nobody wants one.
func (s *State) settled() bool {
	used, _ := s.used()
	return used >= int(s.Rule.Limit) ||
		!slices.ContainsFunc(s.Tasks[:], func(t Task) bool { return t.Phase != Done && t.Phase != Holding && t.Phase != Releasing })
}

// tidy forgets who made a reservation if that one sends no call again.
func (s *State) tidy() {
	for n := range s.Permits {
		p := &s.Permits[n]
		if p.By == sweeper && !s.Sweeps || p.By != 0 && p.By != sweeper && !s.mayRepeat(p.By) {
			p.By = 0
		}
	}
}

// Canonical implements [explore.Model]. It names fences, tickets and tasks anew.
func (m *Model) Canonical(s State) State {
	s.Last = 0
	var all [MaxTasks + 1]ID // by what they are doing
	for n := range s.Tasks {
		t := &s.Tasks[n]
		if t.Fence = 0; t.Phase == Done {
			*t = Task{Phase: Done}
		}
		all[n+1] = ID(n + 1)
	}
	slices.SortStableFunc(all[1:], func(a, b ID) int {
		return cmp.Or(compare(s.task(a).Phase == Done, s.task(b).Phase == Done), cmp.Compare(s.task(a).Ticket, s.task(b).Ticket), cmp.Compare(s.doing(a), s.doing(b)))
	})
	before, last, ticket := s.Tasks, uint8(0), uint8(0)
	var names [MaxTasks + 2]ID
	names[sweeper] = sweeper
	for n, i := range all[1:] {
		t := before[i-1]
		if t.Ticket > last {
			last, ticket = t.Ticket, ticket+1
		}
		if t.Ticket > 0 {
			t.Ticket = ticket
		}
		s.Tasks[n], names[i] = t, ID(n+1)
	}
	for n := range s.Permits {
		s.Permits[n].Of, s.Permits[n].By = names[s.Permits[n].Of], names[s.Permits[n].By]
	}
	return s
}

// compare has false before true.
func compare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	default:
		return -1
	}
}

// doing is a number for what a task is doing.
func (s *State) doing(i ID) (key int) {
	t := s.task(i)
	for _, flag := range []bool{t.Queued, t.Waker, t.Stale, t.Stalled, t.Answered} {
		if key *= 2; flag {
			key++
		}
	}
	for _, p := range s.Permits {
		if key *= 8; p.Of == i {
			key += int(p.Value)
		}
		if p.By == i {
			key += 4
		}
	}
	return key<<8 | int(t.Phase)<<4 | int(t.Permit)
}

// mayRepeat reports whether a task may send its last call again.
func (s *State) mayRepeat(i ID) bool {
	t := s.task(i)
	return t.Phase == Releasing || t.Phase == Pending && !t.Answered
}

// RatesOf returns the rates of a rule.
func (m *Model) RatesOf(rule Rule) []Rate {
	if rule.NewRates {
		return m.NewRates
	}
	return m.Rates
}

// rated reports whether there are rates.
func (m *Model) rated() bool { return len(m.Rates) > 0 }

// longest returns the longest period, and most the most starts, of the rates.
func longest(rates []Rate) (longest, most uint8) {
	for _, r := range rates {
		longest, most = max(longest, r.Period), max(most, r.Starts)
	}
	return longest, most
}
