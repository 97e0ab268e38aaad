// Package permits is a model of a lock with a limit: of its permits, its wait queue and its
// reservations. The model is small enough to try every order of the steps of a few tasks.
//
// [Model.Explore] visits every state and looks for
//
//   - a permit that is given out although the limit has none left;
//   - a task that believes it holds a permit, and does not; or one task with two permits;
//   - a fence that is not higher than all before;
//   - a permit that goes to a task while an earlier one waits;
//   - a change of the limit that takes a permit from somebody;
//   - a plain program that would find the lock free while a permit is held or reserved;
//   - a free permit that only the sweeper gives to a waiting task, though nothing went wrong;
//   - a permit that stays free for as long as others hold theirs, although a task waits;
//   - a state from which not all tasks can finish.
//
// A finding comes with a shortest way there, in words. The [Mistake]s show that the model finds
// mistakes. The parent package is the model of what a lock with a limit shares with every lock.
package permits

// Sizes of a state.
const (
	maxTasks   = 3
	maxPermits = 2
)

// An id names a task, from 1 on; 0 is none.
type id uint8

// A value is what the key of a permit holds.
type value uint8

const (
	free value = iota
	held
	reserved
	dead // held by the token of a process that is gone
)

// A permit is one of the keys of a lock.
type permit struct {
	Value value
	Of    id
}

// A phase is how far a task has come.
type phase uint8

const (
	pending phase = iota // asks for a permit
	parked               // waits
	holding              // believes that it holds a permit
	lost                 // its permit ran out: releases, and asks again
	done
)

// A task has the number of its permit as long as it believes that it holds that, and longer if it
// has lost the permit.
type task struct {
	Phase    phase
	Queued   bool // in the wait queue
	Waker    bool // a client is about to move it to pending
	Stalled  bool // its permit is not renewed
	Answered bool // it knows that it was granted the permit that it holds
	Ticket   uint8
	Permit   uint8
	Fence    uint8
}

// A state is what Redis and its clients know of one lock. The lock's own key has the mark.
type state struct {
	Tasks   [maxTasks]task
	Permits [maxPermits]permit
	Limit   uint8
	Mark    bool  // programs that do not know the limit find the lock busy
	Expired bool  // a reservation has expired since the last grant
	Last    uint8 // the last fence
	Highest uint8 // of all fences
	Faults  uint8 // that may still happen
	Changes uint8 // of the limit that may still happen
}

func (s *state) task(i id) *task { return &s.Tasks[i-1] }

// used returns how many permits are held or reserved, and how many of them are reserved.
func (s *state) used() (used, reservations int) {
	for _, p := range s.Permits {
		if p.Value != free {
			used++
		}
		if p.Value == reserved {
			reservations++
		}
	}
	return used, reservations
}

// of returns the number of the permit that has the value for a task, -1 for none.
func (s *state) of(v value, i id) int {
	for n, p := range s.Permits {
		if p.Value == v && p.Of == i {
			return n
		}
	}
	return -1
}

// first returns the first waiter for whom no permit is reserved, 0 for none.
func (m *Model) first(s *state) (first id) {
	for n := range s.Tasks {
		i := id(n + 1)
		t := s.task(i)
		coming := s.of(reserved, i) >= 0 && m.Mistake != ReservedTwice
		if t.Queued && !coming && (first == 0 || t.Ticket < s.task(first).Ticket) {
			first = i
		}
	}
	return first
}
