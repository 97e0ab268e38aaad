package model

// The sizes of a state. A run with more attempts or calls at a time than
// these panics.
const (
	MaxTasks     = 4
	MaxResources = 2
	maxAttempts  = 6
	maxCalls     = 8
)

// An ID names a task, from 1 on; 0 is none.
type ID uint8

// A Place is where a task is.
type Place uint8

// The places of a task. Parked and Backoff are both asynq's retry set.
const (
	Pending Place = iota
	Active
	Parked
	Backoff
	Archived
	Done
	Deleted
)

// A Task is what Redis knows of one, and the ledger.
type Task struct {
	In Place
	// Tickets are small numbers; what counts is which are the same, and of a resource which
	// are older.
	Ticket uint8 // the mark siding_ticket
	Called bool  // the mark siding_called
	InLine uint8 // the ticket that its place in line has, 0 when it has none
	Aside  bool  // it keeps its place, but was set aside, as its queue is or was paused
	// Effects says how often the ledger has applied the task.
	Effects uint8
}

// A Value is what the lock's key holds.
type Value uint8

// The values of a lock.
const (
	Free Value = iota
	Held
	Reserved
	Foreign
)

// Who holds a lock besides an attempt.
const (
	ByDead     uint8 = 0 // the token of a process that is gone
	ByRecovery uint8 = 255
)

// A Lock is a resource's lock with its companions and the ledger's fence.
type Lock struct {
	Value Value
	By    uint8 // of one that is held: the attempt's slot + 1
	For   ID    // the waiter it is reserved for; the task in the holder's label
	Mark  bool  // reserved since it was last granted
	Line  [MaxTasks]ID
	// Listed says that the sweeper looks at the lock. It goes off the list when nobody waits, here
	// at once.
	Listed bool
	Last   uint8 // the last fencing token
	Seen   uint8 // the highest fencing token that wrote to the ledger
}

// A Phase is how far an attempt has come: what it has done, and so what it
// does next.
type Phase uint8

// The phases of an attempt, each between two atomic steps.
const (
	Taken     Phase = iota + 1 // from pending: asks for the lock
	Refused                    // is in line: parks
	Holding                    // its handler is at work
	Wrote                      // its handler has written its effect
	Unclaimed                  // its task was put back before its handler began: releases its lock
	Succeeded                  // has released: acknowledges success
	Failed                     // has released: acknowledges its own failure
	Lost                       // its lease was lost: parks in no line
	Regained                   // has joined its line again, and got a lock that it had lost: releases it
)

// An Attempt is one run of a task, alive.
type Attempt struct {
	Task     ID // 0: the slot is free
	Worker   uint8
	Phase    Phase
	Latest   bool  // the task's hash names it
	Ahead    bool  // its task was taken in advance: its handler begins once a dequeue claims it
	Stalled  bool  // neither its lock nor its asynq lease is renewed for now
	Off      bool  // asynq, the recovery or a shutdown has taken its task from it
	Deprived bool  // its lock ran out, or somebody deleted it
	Back     bool  // its task was put back: it joins the line again before it releases
	Came     uint8 // the ticket that the dequeue gave it
	Ticket   uint8 // the one of its place in line, once it has been refused
	Fence    uint8
}

// A Turn is how far a call has come.
type Turn uint8

// The turns of a call.
const (
	Calling  Turn = iota + 1 // promotes
	Again                    // noted: promotes once more
	Moving                   // has looked, will move; in two steps by mistake only
	Telling                  // promoted: takes the waiter out of the line
	Dropping                 // the waiter cannot come: passes on
	Setting                  // its queue is paused: sets the waiter aside
)

// A Call is a goroutine that calls the waiter of a reservation.
type Call struct {
	Task     ID // 0: the slot is free
	Ticket   uint8
	Worker   uint8
	Turn     Turn
	Standing bool // its reservation is what the lock holds
}

// A Recovery is the one member of the fleet that brings back the tasks of
// workers that died. It finds one, hands on its lock if it got it, and moves it.
type Recovery struct {
	Task  ID   // 0: it is idle
	Same  bool // the task is still under the attempt it was found under
	Holds bool // it has the lock
	Keeps bool // it has not released the lock, which it may have lost by now
}

// A Loss is what the sweeper has seen: a parked task that stands in no line.
type Loss struct {
	Task   ID // 0: none
	Ticket uint8
}

// elected is the worker number of the recovery and the sweeper, and of their calls.
const elected = 2

// A State is all that the protocol knows, and what is in its processes' minds.
// States are comparable, and small.
type State struct {
	Tasks    [MaxTasks]Task
	Locks    [MaxResources]Lock
	Queue    [MaxTasks + 1]ID // pending, the next one first
	Attempts [maxAttempts]Attempt
	Calls    [maxCalls]Call
	Recovery Recovery
	Loss     Loss
	Paused   bool
	Faults   uint8 // that may still happen
	Failures uint8 // of handlers that may still happen
	Ahead    uint8 // how many tasks may still be taken in advance
}

func (s *State) task(id ID) *Task { return &s.Tasks[id-1] }

// finished reports whether the task will not run again by itself.
func (t *Task) finished() bool { return t.In == Done || t.In == Archived || t.In == Deleted }

// latest returns the slot of the live attempt that the task's hash names, -1
// when there is none.
func (s *State) latest(id ID) int {
	for i := range s.Attempts {
		if a := &s.Attempts[i]; a.Task == id && a.Latest {
			return i
		}
	}
	return -1
}

// List operations on arrays that are filled from the front.

func index(list []ID, id ID) int {
	for i, other := range list {
		if other == id {
			return i
		}
	}
	return -1
}

func appendTo(list []ID, id ID) {
	for i, other := range list {
		if other == 0 {
			list[i] = id
			return
		}
	}
	panic("model: a list is full")
}

// insert puts id into a line, behind those with older tickets.
func (s *State) insert(line []ID, id ID) {
	appendTo(line, id)
	for i := index(line, id); i > 0 && s.task(line[i-1]).InLine > s.task(id).InLine; i-- {
		line[i-1], line[i] = line[i], line[i-1]
	}
}

func prepend(list []ID, id ID) {
	if list[len(list)-1] != 0 {
		panic("model: a list is full")
	}
	copy(list[1:], list)
	list[0] = id
}

func remove(list []ID, id ID) {
	if i := index(list, id); i >= 0 {
		copy(list[i:], list[i+1:])
		list[len(list)-1] = 0
	}
}

// Crowded reports whether there is hardly room for another call.
func (s *State) Crowded() bool { return s.Calls[maxCalls-2].Task != 0 }
