package model

import (
	"strconv"
	"strings"
)

// An Event is a kind of move.
type Event uint8

// The events. Those from StepUnheard on are faults, those from Delete to Pause what operators do.
const (
	Step Event = iota
	Resend
	HearLate
	Arrive
	ArriveAged
	HandlerEnds
	Wake
	SecondPasses
	Enqueue
	WindowEnds
	Expire
	LeaseEnds
	EntryDue
	OfferEnds
	TimeComes
	Unseen
	ForeignLeaves
	LockerLeaves
	Unpause
	Upkeep
	Continue
	Heartbeat
	Failover
	RetryHeld
	SkipHeld
	Retime // by mistake only

	Delete
	Archive
	DashboardRuns
	EnqueueAgain
	LockerTakes
	Revoke
	Pause

	StepUnheard
	StepDelayed
	StepFails
	Crash
	CutOff
	Drain
	ForeignTakes
	Evict
	ClockBack
	ReplicaStops
)

var eventWords = [...]string{
	Step: "server S makes a step", Resend: "server S sends its step again", HearLate: "the first answer reaches server S",
	Arrive: "the first copy of server S arrives", ArriveAged: "the first copy of server S arrives, more than 2 s old",
	HandlerEnds: "the handler of task T ends: ", Wake: "server S is notified for queue Q", SecondPasses: "server S has slept for a second",
	Enqueue: "task T is enqueued", WindowEnds: "nobody may trust what server S has not heard of yet", Expire: "lock R expires",
	LeaseEnds: "the lease of task T ends", EntryDue: "the time comes to look at lock R in queue Q", OfferEnds: "50 ms pass after the release of lock R",
	TimeComes: "the time comes at which task T may run again", Unseen: "no server of queue Q has had a free slot for seconds",
	LockerLeaves: "the Locker leaves lock R", LockerTakes: "a Locker takes lock R", Revoke: "lock R is revoked",
	ForeignLeaves: "the plain program leaves lock R", Unpause: "queue Q is resumed", Upkeep: "upkeep rebuilds what is missing",
	Continue: "server S goes on", Heartbeat: "server S's heartbeat finds that locks are not its own", Failover: "the replica is the master now",
	RetryHeld: "an operator has task T run, which has stopped its line", SkipHeld: "an operator gives up task T, which has stopped its line",
	Retime: "the forwarder gives task T another time", Delete: "task T is deleted", Archive: "task T is archived", DashboardRuns: "task T is run from the dashboard",
	EnqueueAgain: "the id of task T is enqueued again", Pause: "queue Q is paused",
	StepUnheard: "server S makes a step, and hears no answer", StepDelayed: "server S sends a step that does not arrive yet",
	StepFails: "server S makes a step that fails at write N", Crash: "server S dies, and another one starts", CutOff: "server S stops, or is cut off",
	Drain: "server S shuts down", ForeignTakes: "a plain program takes lock R", Evict: "a key is lost: N of queue Q and lock R",
	ClockBack: "the clock of Redis steps back", ReplicaStops: "the replica does not follow any more",
}

func (e Event) fault() bool  { return e >= StepUnheard }
func (e Event) action() bool { return e >= Delete && e <= Pause }

// waits reports whether the event needs time to pass, or somebody who does something.
func (e Event) waits() bool {
	switch e {
	case Step, Resend, Wake:
		return false
	default:
		return true
	}
}

var kindWords = [...]string{NoKind: "", Succeed: "success", Fail: "a failure", Requeue: "again at once", Snooze: "again later, in its place", Hold: "again later, and first in its line", StopLine: "a failure that stops its line", Ask: "", More: ""}

// A Move is one step of a server, or one event.
type Move struct {
	Event                      Event
	Server, Queue, Resource, N uint8
	Task                       ID
	Kind                       Kind // of outcome
}

func (m Move) String() string {
	number := func(n uint8) string { return strconv.Itoa(int(n)) }
	words := strings.NewReplacer("server S", "server "+number(m.Server+1), "task T", "task "+number(uint8(m.Task)), "lock R", "lock "+number(m.Resource+1),
		"queue Q", "queue "+number(m.Queue+1), "write N", "write "+number(m.N), "lost: N", "lost: "+evicted[m.N%uint8(len(evicted))]).Replace(eventWords[m.Event])
	if m.Event == Step && m.Queue > 0 {
		words += ", its second queue first"
	}
	return words + kindWords[m.Kind]
}

var evicted = [...]string{"the ready set", "the line", "the list of lines"}
