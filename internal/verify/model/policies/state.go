package policies

// MaxTasks is how many tasks a model may have.
const MaxTasks = 3

// An id names a task, from 1 on; 0 is none.
type id uint8

func (i id) bit() uint8 { return 1 << (i - 1) }

// outsider is the holder of the lock at first, who is none of the tasks.
const outsider id = MaxTasks + 1

// worker names the worker of a task, which waits by itself.
func (i id) worker() id { return outsider + i }

// goneWorker is a worker whose process is gone.
const goneWorker = outsider + MaxTasks + 1

// A phase is how far a task has come: what it does next.
type phase uint8

const (
	pending    phase = iota // a worker takes it
	taken                   // asks for the lock
	asked                   // is in the wait queue, as the lock is busy: asks who else waits, leaves, or parks
	admitted                // leaves the wait queue, so that its worker waits
	joining                 // its worker asks for the lock, and waits
	waiting                 // its worker is in the wait queue
	meeting                 // an equal one is registered: deletes that one, or looks whether it still waits
	met                     // asks again who else waits
	clearing                // takes the deleted one out of the wait queue
	parking                 // parks
	dropping                // leaves the wait queue, and is coalesced
	rejecting               // leaves the wait queue, and is rejected
	tooLate                 // leaves the wait queue, as it has waited too long
	lateHolder              // has the lock, and has waited too long: releases it
	running                 // has the lock, and is at work
	dropped                 // has left the wait queue: ends
	rejected                // likewise
	late                    // likewise
	parked                  // waits
	ended
)

// atWork reports whether the worker of a task waits for it, or has done so.
func (l *local) atWork() bool { return l.Waited || l.Phase == joining || l.Phase == waiting }

// active reports whether a worker has the task.
func (p phase) active() bool { return p > pending && p < parked }

// An end is how a task ended.
type end uint8

const (
	unended   end = iota
	done          // it has run
	coalesced     // dropped, as an equal one waits
	replaced      // deleted, as a later one takes its position
	refused       // rejected
	expired       // it has waited too long
	deleted       // by an operator
	foreign       // its id is that of a task which is none of these
)

// A local is what the worker of a task knows. It is gone with the worker.
type local struct {
	Phase   phase
	Came    uint8 // when the task came, as the dequeue says
	At      uint8 // its ticket in the wait queue
	Equal   id    // who is registered
	EqualAt uint8 // the ticket of that one
	EqualIn uint8 // when that one came
	Gone    id    // who does not wait any more
	Deleted bool  // by this one
	Gets    uint8 // the ticket that it gets when it is registered
	Older   bool  // for the properties: the equal one was taken before this one
	GetsIn  uint8 // likewise: since when the position is waited for that it gets
	Waited  bool  // its worker has waited
	Missed  bool  // its worker has not heard that the lock is reserved for it
}

// A task is what Redis, its worker and the test know of one.
type task struct {
	local

	Ticket  uint8 // under which it is parked, or comes again
	Queued  uint8 // its ticket in the wait queue, 0 if it is in none
	Waker   bool  // a client is about to wake it
	WakeAt  uint8 // the ticket that the client knows
	Again   bool  // the task was active: the client tries once more
	Woken   bool  // it was woken while a worker had it
	Waits   bool  // it was parked since it came
	Worker  uint8 // the ticket of its worker in the wait queue, 0 if it is in none
	Retried bool  // it has used its retry

	// For the properties alone.

	End   end
	By    id    // which task it was coalesced into, or replaced by
	First uint8 // when a worker took it first, or an earlier one of its id
	Taken uint8 // likewise, or took it again after a crash
	Since uint8 // when the position came that it has
	Heard bool  // an equal one has started since it came
	Ran   bool
	Known bool  // it has registered since it came
	Met   uint8 // who was parked together with it and was taken earlier: bit n-1 for task n
	// Alive says which earlier tasks it could not delete, as they had a worker. Each of the two may go first.
	Alive uint8
	Kept  bool // no equal task has to run for it: an operator, or the wait of the other one, was in the way
}

// A State is what all know of one lock. The lock is held by By, reserved for For, or free.
type State struct {
	Tasks   [MaxTasks]task
	By      id
	For     id    // a task, or its worker
	Mark    bool  // a reservation has expired since the last grant
	Equal   id    // who is registered
	EqualIn uint8 // and when that one came
	Clock   uint8
	Faults  uint8 // that may still happen
	Ticks   uint8 // that may still pass, beside those in which a task is taken
}

func (s *State) task(i id) *task { return &s.Tasks[i-1] }

// first returns the first in the wait queue, 0 for none.
func (s *State) first() (first id) {
	var ticket uint8
	for n, t := range s.Tasks {
		i := id(n + 1)
		if t.Queued > 0 && (first == 0 || t.Queued < ticket) {
			first, ticket = i, t.Queued
		}
		if t.Worker > 0 && (first == 0 || t.Worker < ticket) {
			first, ticket = i.worker(), t.Worker
		}
	}
	return first
}

// queued returns how many are in the wait queue.
func (s *State) queued() (count int) {
	for _, t := range s.Tasks {
		for _, ticket := range []uint8{t.Queued, t.Worker} {
			if ticket > 0 {
				count++
			}
		}
	}
	return count
}
