package permits

import (
	"fmt"
	"slices"
	"strings"
)

// A Model is a lock with a limit of two at first, and some tasks that want it.
type Model struct {
	Tasks   int   // at most three
	Faults  uint8 // that happen in each run at most
	Changes uint8 // of the limit, likewise
	Mistake Mistake
}

// A Report is what an exploration found.
type Report struct {
	States int
	// Broken is the property that is broken, "" if none is, and Trace a shortest way there, in words.
	Broken string
	Trace  []string
}

func (r Report) String() string {
	if r.Broken == "" {
		return fmt.Sprintf("%d states", r.States)
	}
	return fmt.Sprintf("%s (%d states)\n  %s", r.Broken, r.States, strings.Join(r.Trace, "\n  "))
}

// An origin says from which state a state was first reached, and how.
type origin struct {
	parent int
	words  string
}

// Explore visits every state that can be reached, up to the first one that breaks a property.
func (m *Model) Explore() (report Report) {
	start := state{Limit: maxPermits, Faults: m.Faults, Changes: m.Changes}
	for n := m.Tasks; n < maxTasks; n++ {
		start.Tasks[n].Phase = done
	}
	numbers := map[state]int{start: 0}
	states, origins := []state{start}, []origin{{parent: -1}}
	// The states from which a step leads to a state that is no fault. The second leaves out the ends
	// of handlers, too.
	var before, meanwhile [][]int
	fail := func(n int, property string, more ...string) Report {
		for ; n > 0; n = origins[n].parent {
			more = append([]string{origins[n].words}, more...)
		}
		return Report{States: len(states), Broken: property, Trace: more}
	}
	for n := 0; n < len(states); n++ {
		s := states[n]
		moves := false
		for _, st := range m.steps(&s) {
			if st.broken != "" {
				return fail(n, st.broken, st.words)
			}
			to, known := numbers[st.next]
			if !known {
				to = len(states)
				numbers[st.next] = to
				states, origins = append(states, st.next), append(origins, origin{n, st.words})
			}
			for len(before) < len(states) {
				before, meanwhile = append(before, nil), append(meanwhile, nil)
			}
			if !st.fault && s.Changes == st.next.Changes {
				before[to] = append(before[to], n)
				moves = moves || !st.waits
				if !st.ends {
					meanwhile[to] = append(meanwhile[to], n)
				}
			}
		}
		untouched := s.Faults == m.Faults && s.Changes == m.Changes
		if untouched && !moves && !s.final() {
			return fail(n, "idle: nothing went wrong, and only time brings a waiting task back")
		}
	}
	if n := stuck(states, before, (*state).final); n >= 0 {
		return fail(n, "hope: from here not all tasks can finish any more")
	}
	if n := stuck(states, meanwhile, (*state).settled); n >= 0 {
		return fail(n, "waste: a permit stays free although a task waits, as long as others hold theirs")
	}
	return Report{States: len(states)}
}

// stuck returns a state from which no way leads to an end, -1 if there is none.
func stuck(states []state, before [][]int, end func(*state) bool) int {
	var next []int
	hope := make([]bool, len(states))
	for n := range states {
		if hope[n] = end(&states[n]); hope[n] {
			next = append(next, n)
		}
	}
	for len(next) > 0 {
		n := next[len(next)-1]
		next = next[:len(next)-1]
		for _, from := range before[n] {
			if !hope[from] {
				hope[from] = true
				next = append(next, from)
			}
		}
	}
	return slices.Index(hope, false)
}

// final reports whether all tasks are done.
func (s *state) final() bool {
	return !slices.ContainsFunc(s.Tasks[:], func(t task) bool { return t.Phase != done })
}

// broken returns the property that the step from one state to the next breaks, "" for none.
func broken(from, to *state) string {
	used, _ := to.used()
	switch {
	case to.gives(from) && to.users() > int(to.Limit):
		return "limit: more hold a permit than the limit allows"
	case to.Limit != from.Limit && to.Permits != from.Permits:
		return "change: a new limit takes a permit away"
	case used > 0 && !to.Mark:
		return "mark: a plain program finds the lock free"
	}
	for n, is := range to.Tasks {
		i := id(n + 1)
		granted := to.of(held, i) >= 0 && from.of(held, i) < 0
		switch {
		case to.permitsOf(i) > 1:
			return "one permit: a task has two"
		case is.Phase == holding && to.Permits[is.Permit] != permit{held, i}:
			return "belief: a task believes that it holds a permit, and does not"
		case granted && is.Fence <= from.Highest:
			return "fences: a grant has no higher fence than all before"
		case granted && from.of(reserved, i) < 0 && passes(from, to, from.task(i)):
			return "order: a permit goes to a task while an earlier one waits"
		}
	}
	return ""
}

// users returns how many permits are held or reserved, or are believed to be held.
func (s *state) users() int {
	users, _ := s.used()
	for n, t := range s.Tasks {
		if t.Phase == holding && s.of(held, id(n+1)) < 0 {
			users++
		}
	}
	return users
}

// gives reports whether a permit is held or reserved that was not its task's before.
func (s *state) gives(from *state) bool {
	for n, p := range s.Permits {
		was := from.Permits[n]
		if was != p && (p.Value == reserved || p.Value == held && was != permit{reserved, p.Of}) {
			return true
		}
	}
	return false
}

// permitsOf returns how many permits a task holds, or has reserved for it.
func (s *state) permitsOf(i id) (n int) {
	for _, p := range s.Permits {
		if p.Of == i {
			n++
		}
	}
	return n
}

// settled reports whether every permit that the limit allows is in use, or nobody wants one.
func (s *state) settled() bool {
	used, _ := s.used()
	return used >= int(s.Limit) || !slices.ContainsFunc(s.Tasks[:], func(t task) bool { return t.Phase != done && t.Phase != holding })
}

// passes reports whether a task that was granted a permit passes a waiter that is not woken. After
// a reservation has expired, whoever asks may have the permit.
func passes(from, to *state, was *task) bool {
	if from.Expired {
		return false
	}
	for n, t := range to.Tasks {
		older := was.Ticket == 0 || t.Ticket < was.Ticket
		if t.Queued && older && to.of(reserved, id(n+1)) < 0 {
			return true
		}
	}
	return false
}
