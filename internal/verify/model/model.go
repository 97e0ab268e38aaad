// Package model is a model of the step by which a server ends and begins attempts, and of the
// lines and ready sets in which tasks wait. The model is small enough to try every order of the steps of a few
// tasks, with some faults among them.
//
// A [State] is what Redis knows, and what the servers know. Each step is one script, or one event: time passes, a
// server dies, an operator deletes a task. A script does what step.lua does: it settles, recovers, gives locks to
// those that ask, fetches, and notifies, write by write, so that it may fail at each of them. A task needs one of two
// resources, none, or both: a set asks for its locks, gets all of them at once, and else waits in the line of each with none
// in its hand. The first of a batch has a lock, and asks for those that come next in its line: they run under that lock, and the first
// ends after all of them. [Model.Explore] visits every state and looks for
//
//   - an attempt that trusts a lock which it does not have;
//   - a task that is in two places, in none, or back although it was gone;
//   - a task that is moved by an attempt which is not its latest, or done by one that had lost its lock;
//   - a living attempt whose task is taken, or of which its server never hears; more attempts than slots;
//   - a task in a batch that has crashed, or of which the first has;
//   - a waiting task that is not in each of its lines, a ticket that changes, or a new one that is not the latest;
//   - a task that starts before an older ticket of its line, also before that of a crashed task, or of one that holds the
//     line; a crash that uses a retry though it is a free one;
//   - a line that its lock does not list, or without an entry in the ready set; an entry that is not due although the
//     head could start;
//   - a ready resource that is passed by one which became ready later, or again and again by pending, or the other way
//     round;
//   - a lock that is kept from a queue for another one that nobody serves, or more than once; a lock that is taken while
//     an older waiter of another queue has its 50 ms;
//   - a task that could start, while a server of its queue sleeps that nobody wakes, though nothing went wrong;
//   - a state from which not all tasks can finish, or not before the lock of a living holder ends.
//
// A finding comes with a shortest way there, in words. The [Mistake]s show that the model finds mistakes. And the scripts have to
// follow the model: the tests take walks through it, and compare what it knows with what Redis knows after each move.
package model

import "slices"

// The resources of a task that has none, and of a set: a task that needs all of them.
const (
	Unguarded = MaxResources + iota
	Both
)

// A Spec says what is known of a task from the start.
type Spec struct {
	Queue, Resource uint8
	// Plain is a task of a plain asynq client. Only a server can tell its resource.
	Plain bool
	// Batched is a task of the kind whose handler works on all that wait for its resource at once.
	Batched bool
}

var locks = [...][]uint8{{0}, {1}, Unguarded: nil, Both: {0, 1}}

// Locks returns the locks that the task needs.
func (s Spec) Locks() []uint8 { return locks[s.Resource] }

// asks reports whether the task begins without a lock, and its server then asks for what it needs.
func (s Spec) asks() bool { return s.Plain || s.Resource == Both }

// batches reports whether the task may run with others, under one lock.
func (s Spec) batches() bool { return s.Batched && s.Resource < MaxResources }

// A Serving says what a server does.
type Serving struct {
	Queues []uint8
	Slots  uint8
}

// A Model is the protocol with a few tasks, in the order in which they come, and a ration of what may happen.
type Model struct {
	Tasks    []Spec
	Servers  []Serving
	Faults   uint8
	Failures uint8   // of handlers, or other ends than success
	Actions  uint8   // of operators
	Only     []Event // the faults and actions that happen; nil for all but ReplicaStops
	Mistake  Mistake
	Turns    bool // count who was passed
	Wide     bool // a step has the bounds of the scripts, which a few tasks do not reach
}

// Start returns the state in which the model starts.
func (m *Model) Start() State {
	s := State{Faults: m.Faults, Failures: m.Failures, Actions: m.Actions}
	for n := len(m.Tasks); n < MaxTasks; n++ {
		s.Tasks[n].Status = Done
	}
	for n := range s.Records {
		s.Records[n] = Before
	}
	return s
}

// The goals that are to stay within reach: that all tasks finish, and that they do so without waiting for the end of a lock whose
// holder lives. A step counts for a goal, or does not.
const (
	hope uint8 = 1 << iota
	prompt
)

// goals are what a state breaks from which no way leads to the end by the steps that count.
var goals = map[uint8]string{
	hope:   "hope: from here not all tasks can finish any more",
	prompt: "prompt: from here a task waits for the end of a lock whose holder lives",
}

// Final reports whether all tasks are finished that a server may run.
func (m *Model) Final(s *State) bool {
	for n := range m.Tasks {
		if !s.Tasks[n].finished() && m.served(m.Tasks[n].Queue) {
			return false
		}
	}
	return true
}

// Idle returns the property that is broken if no step out of s happens at once; "" for none.
func (m *Model) Idle(s *State) string {
	if s.Faults != m.Faults || s.Actions != m.Actions {
		return ""
	}
	for q := range uint8(MaxQueues) {
		if !m.room(s, q) {
			continue
		}
		if m.enqueued(s, q) {
			return "late: a task is pending, a server of its queue sleeps, and nobody is told"
		}
		for r := range uint8(MaxResources) {
			entry := s.Queues[q].Ready[r]
			if s.Locks[r].Token == free && (entry.due() || entry == Offer && !m.offered(s, q, r) && !m.alarmed(s, q)) && m.startable(s, q, r) {
				return "late: a task waits for a free lock, a server of its queue sleeps, and nobody is told"
			}
		}
	}
	return ""
}

// enqueued reports whether a task of our client is pending.
func (m *Model) enqueued(s *State, q uint8) bool {
	return slices.ContainsFunc(s.Queues[q].Pending[:], func(id ID) bool { return id != 0 && !m.Tasks[id-1].Plain })
}

// alarmed reports whether a server of the queue looks when the offer is over.
func (m *Model) alarmed(s *State, q uint8) bool {
	return m.serves(0, q) && s.Servers[0].Alarm || m.serves(1, q) && s.Servers[1].Alarm
}

// offered reports whether an older waiter of another queue is offered the lock.
func (m *Model) offered(s *State, q, r uint8) bool {
	oldest := s.Locks[r].oldest()
	return oldest < MaxQueues && oldest != q && s.Queues[oldest].Seen
}

// room reports whether a server of the queue lives, and has a free slot.
func (m *Model) room(s *State, q uint8) bool {
	if s.Queues[q].Paused {
		return false
	}
	for n := range m.Servers {
		sv := &s.Servers[n]
		if m.serves(uint8(n), q) && !sv.CutOff && !sv.Drains && s.working(uint8(n)) < m.Servers[n].Slots {
			return true
		}
	}
	return false
}

// startable reports whether the first of a line that still waits could start with the lock: if it is a set it is the first in each
// of its lines, and has all of its locks.
func (m *Model) startable(s *State, q, r uint8) bool {
	id := m.first(s, q, r)
	if id == 0 || s.task(id).holds() {
		return false
	}
	for _, other := range m.Tasks[id-1].Locks() {
		if other != r && (s.Locks[other].Token != free || m.first(s, q, other) != id) {
			return false
		}
	}
	return m.Tasks[id-1].Resource != Both || m.passable(s, id, false)
}

// passable reports whether no older line is listed at the locks of a task: of its own queue, and of others that go on. For one that
// asks all lines count.
func (m *Model) passable(s *State, id ID, asks bool) bool {
	for _, r := range m.Tasks[id-1].Locks() {
		for q, line := range s.Locks[r].Lines {
			if line > 0 && line < s.task(id).Ticket && (asks || uint8(q) == m.Tasks[id-1].Queue || m.GoesOn(s, uint8(q), r)) {
				return false
			}
		}
	}
	return true
}

// GoesOn reports whether a queue is served, and nobody holds its line.
func (m *Model) GoesOn(s *State, q, r uint8) bool {
	head := m.head(&s.Redis, q, r)
	return s.Queues[q].Seen && (head == 0 || !s.task(head).holds())
}

// first returns the first of a line that still waits, 0 for none.
func (m *Model) first(s *State, q, r uint8) (first ID) {
	for n := range m.Tasks {
		if t := &s.Tasks[n]; t.waits(r) && m.Tasks[n].Queue == q && (first == 0 || t.Line[r] < s.task(first).Line[r]) {
			first = ID(n + 1)
		}
	}
	return first
}

// serves reports whether a server serves a queue.
func (m *Model) serves(server, q uint8) bool {
	return int(server) < len(m.Servers) && slices.Contains(m.Servers[server].Queues, q)
}

// served reports whether any server serves a queue.
func (m *Model) served(q uint8) bool {
	return m.serves(0, q) || m.serves(1, q)
}
