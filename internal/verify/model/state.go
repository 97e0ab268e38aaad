package model

// The sizes of a state. A run that needs more attempts or wakers at a time panics.
const (
	MaxTasks     = 4
	MaxResources = 2
	maxAttempts  = 6
	maxWakers    = 8
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
	// Tickets are small numbers: only which are equal counts, and which of a resource are older.
	Ticket   uint8 // the mark siding_ticket
	Woken    bool  // the mark siding_woken
	Position uint8 // the ticket by which it is in the wait queue, 0 when it is in none
	Skipped  bool  // it keeps its position, but releases skip it, as its queue is or was paused
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

// The holders of a lock that are no attempts.
const (
	ByDead     uint8 = 0 // the token of a process that is gone
	ByRecovery uint8 = 255
)

// A Lock is a resource's lock with its companions and the ledger's fence.
type Lock struct {
	Value   Value
	By      uint8 // of one that is held: the attempt's slot + 1
	For     ID    // the waiter of the reservation, or the task in the holder's label
	Mark    bool  // reserved since it was last granted
	Waiters [MaxTasks]ID
	// Listed says that the sweeper looks at the lock. The lock leaves the list when nobody waits;
	// in the model at once.
	Listed bool
	Last   uint8 // the last fencing token
	Seen   uint8 // the highest fencing token that wrote to the ledger
}

// heldBy reports whether the attempt in a slot holds the lock.
func (l *Lock) heldBy(slot uint8) bool { return l.Value == Held && l.By == slot+1 }

// A Phase is how far an attempt has come: what it has done, and so what it does next.
type Phase uint8

// The phases of an attempt, each between two atomic steps.
const (
	Taken     Phase = iota + 1 // from pending: asks for the lock
	Busy                       // is in the wait queue: parks
	Holding                    // its handler is at work
	Wrote                      // its handler has written its effect
	Requeued                   // its task was requeued before its handler started: releases its lock
	Succeeded                  // has released: acknowledges success
	Failed                     // has released: acknowledges its own failure
	Lost                       // its lease was lost: parks without a position
	Regained                   // joined the wait queue again, and got a lock that it had lost: releases the lock
)

// An Attempt is one run of a task, alive.
type Attempt struct {
	Task       ID // 0: the slot is free
	Worker     uint8
	Phase      Phase
	Latest     bool  // the task's hash names it
	Prefetched bool  // its task is prefetched: its handler starts when a dequeue takes the task
	Stalled    bool  // neither its lock nor its asynq lease is renewed for now
	Off        bool  // asynq, the recovery or a shutdown has taken its task
	Deprived   bool  // its lock ran out, or somebody deleted it
	Rejoins    bool  // its task was requeued: joins the wait queue again before it releases
	Came       uint8 // the ticket that the dequeue gave it
	Ticket     uint8 // its ticket in the wait queue, once the lock was busy
	Fence      uint8
}

// A Stage is how far a waker has come.
type Stage uint8

// The stages of a waker.
const (
	Waking     Stage = iota + 1 // moves the task to pending
	Again                       // the task was still active: tries once more
	Moving                      // has looked, will move; in two steps by mistake only
	Confirming                  // the task is pending: removes the waiter from the wait queue
	Leaving                     // the waiter cannot come: removes it and hands off
	Skipping                    // its queue is paused: has releases skip the waiter
)

// A Waker is a goroutine that wakes the waiter of a reservation.
type Waker struct {
	Task     ID // 0: the slot is free
	Ticket   uint8
	Worker   uint8
	Stage    Stage
	Standing bool // its reservation is what the lock holds
}

// A Recovery is the one member of the fleet that requeues the tasks of dead workers. Recovery finds
// a task, takes and hands off its lock if that is free, and moves the task.
type Recovery struct {
	Task       ID   // 0: it is idle
	Same       bool // the task still has the attempt with which it was found
	Holds      bool // it has the lock
	Unreleased bool // it has not released the lock, which it may have lost by now
}

// A Loss is what the sweeper has seen: a parked task that is in no wait queue.
type Loss struct {
	Task   ID // 0: none
	Ticket uint8
}

// elected is the worker number of the recovery and the sweeper, and of their wakers.
const elected = 2

// A State is all that Redis and the processes know. States are comparable, and small.
type State struct {
	Tasks    [MaxTasks]Task
	Locks    [MaxResources]Lock
	Queue    [MaxTasks + 1]ID // pending, the next one first
	Attempts [maxAttempts]Attempt
	Wakers   [maxWakers]Waker
	Recovery Recovery
	Loss     Loss
	Paused   bool
	Faults   uint8 // that may still happen
	Failures uint8 // of handlers that may still happen
	Prefetch uint8 // how many tasks may still be prefetched
}

func (s *State) task(id ID) *Task { return &s.Tasks[id-1] }

// finished reports whether the task will not run again by itself.
func (t *Task) finished() bool { return t.In == Done || t.In == Archived || t.In == Deleted }

// latest returns the slot of the live attempt that the task's hash names, -1 if there is none.
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

// insert puts id into a wait queue, behind those with older tickets.
func (s *State) insert(queue []ID, id ID) {
	appendTo(queue, id)
	for i := index(queue, id); i > 0 && s.task(queue[i-1]).Position > s.task(id).Position; i-- {
		queue[i-1], queue[i] = queue[i], queue[i-1]
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

// Crowded reports whether there is hardly room for another waker.
func (s *State) Crowded() bool { return s.Wakers[maxWakers-2].Task != 0 }
