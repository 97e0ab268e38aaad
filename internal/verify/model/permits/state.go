package permits

// Sizes of a state.
const (
	MaxTasks   = 3
	MaxPermits = 2
	maxPeriod  = 6 // of a rate, in ticks
	maxStarts  = 3 // of a rate
)

// An ID names a task, from 1 on; 0 is none.
type ID uint8

// sweeper is who makes a reservation in a sweep.
const sweeper ID = MaxTasks + 1

// A Value is what the key of a permit holds.
type Value uint8

// The values of a permit.
const (
	Free Value = iota
	Held
	Reserved
	Dead // held by the token of a process that is gone
)

// A Rule is what a call carries: the limit, and which rates.
type Rule struct {
	Limit    uint8
	NewRates bool // the rates are those of [Model.NewRates]
}

// A Permit is one of the keys of a lock.
type Permit struct {
	Value Value
	Of    ID
	By    ID // who made the reservation, if that one may send its call again
}

// A Phase is how far a task has come.
type Phase uint8

// The phases of a task.
const (
	Pending   Phase = iota // asks for a permit
	Parked                 // waits
	Holding                // believes that it holds a permit
	Lost                   // its permit ran out: releases, and asks again
	Releasing              // has released, and got no answer: sends the call again
	Done
)

// A Task has the number of its permit as long as it believes that it holds that, and longer if it
// has lost the permit.
type Task struct {
	Phase    Phase
	Queued   bool // in the wait queue
	Waker    bool // a client is about to move it to pending
	Stale    bool // the reservation that the client knows is gone
	Stalled  bool // its permit is not renewed
	Answered bool // it knows that it was granted the permit that it holds
	Ticket   uint8
	Permit   uint8
	Fence    uint8
}

// A State is what Redis and its clients know of one lock. The lock's own key has the mark.
type State struct {
	Tasks   [MaxTasks]Task
	Permits [MaxPermits]Permit
	Rule    Rule
	Old     Rule  // that of the servers that have not read the last override; else Rule
	Late    bool  // by mistake only: servers still have Old, long after the override
	Mark    bool  // programs that do not know the limit find the lock busy
	Expired bool  // the last fence says that a reservation has been made since, which may have expired
	Gone    bool  // one really has expired since then
	Sweeps  bool  // a sweep got no answer, and is sent again
	Last    uint8 // the last fence

	Starts [maxStarts]uint8 // the log: how many ticks ago each start was + 1, the latest first; 0 for none
	Kept   uint8            // in how many ticks the log expires
	True   [maxPeriod]uint8 // how many permits were really granted so many ticks ago
	Known  uint8            // for how many ticks the log has had all starts that the rates count, maxPeriod at most
	Extra  uint8            // by mistake only: reservations that count for ever
	Plan   uint8            // in how many ticks a client sweeps the lock, + 1; 0 for never
	Swept  bool             // the sweeper has looked since the last tick
	Wasted uint8            // ticks for which a waiter has had room, and nobody was given a permit

	Faults  uint8 // that may still happen
	Changes uint8 // of the rule that may still happen
}

func (s *State) task(i ID) *Task { return &s.Tasks[i-1] }

// used returns how many permits are held or reserved, and how many of them are reserved.
func (s *State) used() (used, reservations int) {
	for _, p := range s.Permits {
		if p.Value != Free {
			used++
		}
		if p.Value == Reserved {
			reservations++
		}
	}
	return used, reservations
}

// of returns the number of the permit that has the value for a task, -1 for none.
func (s *State) of(v Value, i ID) int {
	for n, p := range s.Permits {
		if p.Value == v && p.Of == i {
			return n
		}
	}
	return -1
}

// first returns the first waiter for whom no permit is reserved, 0 for none. me may be that one in any
// case.
func (m *Model) first(s *State, me ID) (first ID) {
	for n := range s.Tasks {
		i := ID(n + 1)
		t := s.task(i)
		coming := s.of(Reserved, i) >= 0 && m.Mistake != ReservedTwice
		if t.Queued && (!coming || i == me) && (first == 0 || t.Ticket < s.task(first).Ticket) {
			first = i
		}
	}
	return first
}
