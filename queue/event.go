package queue

import "time"

// EventKind says what happened to a guarded task.
type EventKind int

// The kinds of event, in the order of a task's life.
const (
	// EventParked: the resource was busy, and the task was parked. Parked says how often so far.
	EventParked EventKind = iota + 1
	// EventAcquired: the task holds the lock of its resource, and its handler starts. If the task
	// has waited, Waited and Via are set, and HandOff if somebody has released the lock.
	EventAcquired
	// EventReleased: the handler has returned, and the lock is free; the next task may have
	// started. Err is the handler's error. A task that has succeeded may be gone from its queue
	// by then.
	EventReleased
	// EventLost: the lock was lost while the handler ran, or the handler returned [lock.ErrStale].
	EventLost
	// EventRecovered: the task's worker died or was cut off, and this server has put the task back
	// into its place.
	EventRecovered
	// EventStarted: the handler of a task without a resource starts.
	EventStarted
	// EventFinished: the handler of a task without a resource has returned. Err is its error.
	EventFinished
	// EventRejected: the resource was busy, and the [Policy] of the task does not have it wait. Err is
	// a [*RejectedError].
	EventRejected
	// EventCoalesced: the task was dropped, as an equal one waits; or, with OnBusyReplace, a later one.
	// Other is the id of that one.
	EventCoalesced
	// EventReplaced: the task was deleted while it waited, as a later one has taken its position.
	// Other is the id of that one.
	EventReplaced
	// EventWaitedTooLong: the task has waited for longer than its [Policy.MaxWait], and does not run.
	// Waited says for how long, and Err is its error.
	EventWaitedTooLong
)

var eventNames = [...]string{
	EventParked: "parked", EventAcquired: "acquired", EventReleased: "released", EventLost: "lost", EventRecovered: "recovered",
	EventStarted: "started", EventFinished: "finished", EventRejected: "rejected", EventCoalesced: "coalesced",
	EventReplaced: "replaced", EventWaitedTooLong: "waited_too_long",
}

// String returns a word for logs and metrics, such as parked or waited_too_long.
func (k EventKind) String() string {
	if k < 1 || int(k) >= len(eventNames) {
		return "unknown"
	}
	return eventNames[k]
}

// Via says what ended the wait of a task.
type Via string

// The ways in which a waiting task comes to its lock. In a healthy fleet nearly all come by
// [ViaHandOff].
const (
	// ViaHandOff: whoever had the lock released it.
	ViaHandOff Via = "handoff"
	// ViaLimit: a [Limit], or the end of a pause, let the task start.
	ViaLimit Via = "limit"
	// ViaRecovery: the lock had expired, as its holder had died, or was deleted.
	ViaRecovery Via = "recovery"
)

// An Event tells [ServerConfig.Observe] what happened to a task. Siding makes its counters and histograms
// of events alone.
type Event struct {
	Kind     EventKind
	TaskID   string
	TaskKind string
	Queue    string // asynq's, as in [Receipt]
	Resource string // of the task, empty for EventStarted and EventFinished
	Fence    int64  // the fencing token, from EventAcquired on; 0 on a Store without
	Parked   int    // only EventParked: how often the task has been parked, for whatever reason
	Holder   string // EventParked, EventRejected: who holds the lock
	Other    string // EventCoalesced, EventReplaced: the id of the task that is to run instead
	// Waited is for how long the task has waited since it first came to its resource, by Redis's
	// clock. EventAcquired has it if the task was parked, and so has EventWaitedTooLong. In a Cluster, and
	// with a Store, it ends when the turn of the task in its queue came. It is at least 1 ns after a wait.
	Waited time.Duration
	Via    Via // only EventAcquired: what ended the wait, empty if the task was not parked
	// ReleasedBy is the traceparent of the run that handed the lock off, if it called SetTraceparent.
	// Only EventAcquired has it, after a wait.
	ReleasedBy string
	// HandOff is the time from the release until then. Only EventAcquired has it, after a hand-off.
	// Redis's clock measures it.
	HandOff time.Duration
	Held    time.Duration // EventReleased, EventLost: for how long the task had the lock; EventFinished: how long its handler ran
	Err     error         // why the task is parked, or the handler's error
}
