package model

import (
	"strconv"
	"strings"
)

// A Kind is a kind of move.
type Kind uint8

// The kinds of moves: those that happen in every fair run if they stay possible,
// those that may happen, and faults.
const (
	Dequeue Kind = iota
	Acquire
	Park
	Write
	Release
	Acknowledge
	Finish
	PutBack
	GiveBack
	Promote
	Tell
	Drop
	SetAside
	Rejoin
	Sweep
	Miss
	Restore
	Enlist
	Timer
	Lapse
	Expire
	FreeForeign
	Find
	HandOn
	Recover
	RecoverByAsynq
	Resume

	Begin
	Fail
	ExpireAlive

	Crash
	LastResort
	GiveUp
	LoseRelease
	LoseAnswer
	Stall
	LapseEarly
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
	Acknowledge: "the attempt of task TASK is acknowledged", Promote: "the call of task TASK promotes it",
	Finish: "the handler of task TASK is done: the task is finished in the step of its release, and the next one taken in advance",
	Begin:  "a dequeue claims task TASK, which was taken in advance", PutBack: "nobody claims task TASK, which was taken in advance: it is put back",
	GiveBack: "the attempt of task TASK, which has not begun, releases its lock", LoseAnswer: "the answer that names task TASK is lost: nobody has it",
	Tell: "the call of task TASK takes it out of the line", Drop: "the call of task TASK passes on", GiveUp: "a call of task TASK gives up",
	SetAside: "the call of task TASK sets it aside", Rejoin: "task TASK, which was put back, joins the line again",
	Miss: "the sweeper misses task TASK in line", Restore: "the sweeper puts task TASK back into the line",
	Enlist: "the sweeper finds task TASK in the line of a lock at which it does not look yet",
	Sweep:  "the sweeper looks at resource RESOURCE", LastResort: "the timer of task TASK, which waits in line, fires",
	LoseRelease: "the handler of task TASK is done, and its release is lost",
	Timer:       "the timer of task TASK fires", Lapse: "the reservation of resource RESOURCE lapses", Expire: "the lock of resource RESOURCE expires",
	FreeForeign: "the foreign holder frees resource RESOURCE", Find: "the recovery finds task TASK", Recover: "the recovery moves task TASK",
	HandOn: "the recovery hands on the lock of task TASK", RecoverByAsynq: "asynq recovers task TASK", Resume: "the queue is resumed",
	Fail:  "the handler of task TASK fails and releases its lock",
	Crash: "worker WORKER dies", Stall: "the attempt of task TASK stalls", LapseEarly: "the reservation of resource RESOURCE lapses before its call is over",
	ExpireAlive: "the lock of resource RESOURCE expires although its holder is alive", Shutdown: "the worker of task TASK shuts down: it is put back",
	Delete: "somebody deletes task TASK", Archive: "somebody archives task TASK", Run: "somebody runs the archived task TASK",
	Pause: "the queue is paused", TakeForeign: "a foreign client takes resource RESOURCE", DeleteLock: "somebody deletes the lock of resource RESOURCE",
}

func (k Kind) String() string { return kindWords[k] }

// fault reports whether a move is one of those that are rationed.
func (k Kind) fault() bool { return k >= Crash }

// fair reports whether a run in which the move stays possible and never happens
// is none that has to be feared.
func (k Kind) fair() bool { return k < Begin }

// waits reports whether the move comes of nothing but time that passes.
func (k Kind) waits() bool {
	return k == Timer || k == Lapse || k == Expire || k == RecoverByAsynq || k == Sweep || k == Miss || k == Enlist
}

// A Move is one step of somebody.
type Move struct {
	Kind     Kind
	Task     ID
	Slot     uint8 // of the attempt or the call
	Resource uint8
	Worker   uint8
}

func (m Move) String() string {
	return strings.NewReplacer(
		"TASK", strconv.Itoa(int(m.Task)), "RESOURCE", strconv.Itoa(int(m.Resource)), "WORKER", strconv.Itoa(int(m.Worker)),
	).Replace(kindWords[m.Kind])
}
