package model

import (
	"strconv"
	"strings"
)

// A Kind is a kind of move.
type Kind uint8

// The kinds of moves: those that happen in every fair run if they stay possible, those that may
// happen, and faults.
const (
	Dequeue Kind = iota
	Acquire
	Park
	Write
	Release
	Acknowledge
	Finish
	Requeue
	GiveBack
	Wake
	Confirm
	Leave
	Skip
	Rejoin
	Sweep
	Miss
	Restore
	Enlist
	Timer
	ExpireReservation
	Expire
	FreeForeign
	Find
	HandOff
	Recover
	RecoverByAsynq
	Resume

	TakePrefetched
	Fail
	ExpireAlive

	Crash
	LastResort
	GiveUp
	LoseRelease
	LoseResult
	Stall
	ExpireReservationEarly
	Shutdown
	Delete
	Archive
	Run
	Pause
	TakeForeign
	DeleteLock
)

var kindWords = [...]string{
	Dequeue: "worker WORKER takes task TASK from pending", Acquire: "task TASK asks for its lock", Park: "task TASK parks",
	Write: "the handler of task TASK writes to the ledger", Release: "the handler of task TASK is done and releases its lock",
	Acknowledge: "the attempt of task TASK is acknowledged", Wake: "the waker of task TASK moves it to pending",
	Finish:         "the handler of task TASK is done: the task is finished in the step of its release, and the next one is prefetched",
	TakePrefetched: "a dequeue takes task TASK, which is prefetched", Requeue: "no dequeue takes task TASK, which is prefetched: it is requeued",
	GiveBack: "the attempt of task TASK, which has not started, releases its lock", LoseResult: "the result that names task TASK is lost: nobody has the task",
	Confirm: "the waker of task TASK removes it from the wait queue", Leave: "the waker of task TASK removes it and hands off", GiveUp: "a waker of task TASK gives up",
	Skip: "the waker of task TASK has releases skip it", Rejoin: "task TASK, which was requeued, joins the wait queue again",
	Miss: "the sweeper misses task TASK in the wait queue", Restore: "the sweeper puts task TASK back into the wait queue",
	Enlist: "the sweeper finds task TASK waiting for a lock that is not on its list",
	Sweep:  "the sweeper looks at resource RESOURCE", LastResort: "the fallback time of task TASK, which waits for its lock, comes",
	LoseRelease: "the handler of task TASK is done, and its release is lost",
	Timer:       "the timer of task TASK fires", ExpireReservation: "the reservation of resource RESOURCE expires", Expire: "the lock of resource RESOURCE expires",
	FreeForeign: "the foreign holder frees resource RESOURCE", Find: "the recovery finds task TASK", Recover: "the recovery moves task TASK",
	HandOff: "the recovery hands off the lock of task TASK", RecoverByAsynq: "asynq recovers task TASK", Resume: "the queue is resumed",
	Fail:  "the handler of task TASK fails and releases its lock",
	Crash: "worker WORKER dies", Stall: "the attempt of task TASK stalls", ExpireReservationEarly: "the reservation of resource RESOURCE expires before its waker is done",
	ExpireAlive: "the lock of resource RESOURCE expires although its holder is alive", Shutdown: "the worker of task TASK shuts down and requeues it",
	Delete: "somebody deletes task TASK", Archive: "somebody archives task TASK", Run: "somebody runs the archived task TASK",
	Pause: "the queue is paused", TakeForeign: "a foreign client takes resource RESOURCE", DeleteLock: "somebody deletes the lock of resource RESOURCE",
}

func (k Kind) String() string { return kindWords[k] }

// fault reports whether the model rations the move.
func (k Kind) fault() bool { return k >= Crash }

// fair reports whether the move happens in every fair run in which it stays possible.
func (k Kind) fair() bool { return k < TakePrefetched }

// waits reports whether the move only needs time to pass.
func (k Kind) waits() bool {
	return k == Timer || k == ExpireReservation || k == Expire || k == RecoverByAsynq || k == Sweep || k == Miss || k == Enlist
}

// A Move is one step of somebody.
type Move struct {
	Kind     Kind
	Task     ID
	Slot     uint8 // of the attempt or the waker
	Resource uint8
	Worker   uint8
	Resumed  bool // of a Sweep: the queue is not paused any more
	Outcome  Outcome
}

func (m Move) String() string {
	words := strings.NewReplacer(
		"TASK", strconv.Itoa(int(m.Task)), "RESOURCE", strconv.Itoa(int(m.Resource)), "WORKER", strconv.Itoa(int(m.Worker)),
	).Replace(kindWords[m.Kind])
	if m.Outcome != OK {
		words += ": " + string(m.Outcome)
	}
	return words
}

// An Outcome is the result of a script.
type Outcome string

// The results of scripts. Woken, Marked, PausedQueue and Gone are those of wake.lua.
const (
	Granted     Outcome = "granted"
	Joined      Outcome = "busy"
	Woken       Outcome = "woken"
	Marked      Outcome = "marked"
	PausedQueue Outcome = "paused"
	Gone        Outcome = "gone"
	Superseded  Outcome = "superseded"
	LostLease   Outcome = "lost"
	BroughtBack Outcome = "skipped waiters are back"
	OK          Outcome = ""
)
