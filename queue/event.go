package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/sidingq/siding/internal/engine"
	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/lock"
)

// EventKind says what happened to a guarded task.
type EventKind int

// The kinds of event, in the order of a task's life.
const (
	// EventParked: the resource was busy, and the task was parked. Parked says how often so far.
	EventParked EventKind = iota + 1
	// EventAcquired: the task holds the lock of its resource, and its handler starts. If the task
	// has waited, Waited and Via are set, and HandOff if somebody has released the lock. They are not
	// set for a task that has kept its place since its handler began: the time since then is no wait.
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
	// EventReplaced: the task was deleted while it waited, as a later one has taken its place.
	// Other is the id of that one.
	EventReplaced
	// EventWaitedTooLong: the task has waited for longer than its [Policy.MaxWait], and does not run.
	// Waited says for how long, and Err is its error. It comes once, however often [ServerConfig.OnMaxWait]
	// is called, but again if the worker dies meanwhile.
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
	// ViaBatch: a task before it in its line took it along, see [HandleBatch].
	ViaBatch Via = "batch"
	// ViaRecovery: the lock had expired, as its holder had died, or was deleted.
	ViaRecovery Via = "recovery"
)

// An Event tells [ServerConfig.Observe] what happened to a task. Siding makes its counters and histograms
// of events alone.
type Event struct {
	Kind     EventKind
	TaskID   string
	TaskKind string // empty in EventParked, EventReplaced and EventRecovered if a plain asynq client enqueued the task
	Queue    string // asynq's, as in [Receipt]
	Resource string // of the task, or several as [AllOf] has them; empty for EventStarted and EventFinished
	Fence    int64  // the fencing token, from EventAcquired on; 0 on a Store without
	Parked   int    // only EventParked: how often the task has been parked
	Holder   string // EventParked, EventRejected: who holds the lock
	Other    string // EventCoalesced, EventReplaced: the id of the task that is to run instead
	// Waited is for how long the task has waited since it first came to its resource, by Redis's
	// clock. EventAcquired has it if the task was parked for this run, and so has EventWaitedTooLong. In a Cluster, and
	// with a Store, it ends when the turn of the task in its queue came. It is at least 1 ns after a wait.
	Waited time.Duration
	Via    Via // only EventAcquired: what ended the wait, empty without Waited
	// ReleasedBy is the traceparent of the run that handed the lock off, if it called SetTraceparent.
	// Only EventAcquired has it, after a wait.
	ReleasedBy string
	// HandOff is the time from the release until then. Only EventAcquired has it, after a hand-off.
	// Redis's clock measures it.
	HandOff time.Duration
	Held    time.Duration // EventReleased, EventLost: for how long the task had the lock; EventFinished: how long its handler ran
	Err     error         // why the task is parked, or the handler's error
}

// Events.

// observe tells the observer, whose panic is no reason to end a task.
func (s *Server) observe(ev Event) {
	defer func() {
		if p := recover(); p != nil {
			s.cfg.Logger.Error("Observe has panicked", "event", ev.Kind.String(), "task_id", ev.TaskID, "panic", fmt.Sprint(p))
		}
	}()
	s.cfg.Observe(ev)
}

func (a *attempt) event(kind EventKind) Event {
	return Event{Kind: kind, TaskID: a.ID, TaskKind: a.Type, Queue: a.Queue, Resource: a.Resource}
}

// acquired tells the observer that an attempt has its lock, and how it came to it. The times are all of Redis' clock. It returns the
// context of the handler, which has the event if the task has waited.
func (s *Server) acquired(ctx context.Context, a *attempt, fence int64) context.Context {
	a.Acquired, a.Fence = true, fence
	ev := a.event(EventAcquired)
	ev.Fence = fence
	if t := a.Taken; t.Waited {
		ev.Waited, ev.Via = max(a.waited(time.UnixMicro(t.Fence)), 1), ViaRecovery
		if s.ruleOf(a.Resource) != nil {
			ev.Via = ViaLimit
		}
		if a.First() != nil {
			ev.Via = ViaBatch
		}
		if t.Freed > 0 {
			ev.Via, ev.HandOff, ev.ReleasedBy = ViaHandOff, max(time.Duration(t.Fence-t.Freed)*time.Microsecond, 1), t.FreedBy
		}
		ctx = context.WithValue(ctx, engine.WaitKey{}, ev)
	}
	s.observe(ev)
	return ctx
}

// waited returns for how long a task has waited until end. The fence of the lock of its place is when it got that.
func (a *attempt) waited(end time.Time) time.Duration {
	priority, _ := priorityOf(a.Message)
	return max(0, end.Sub(time.UnixMicro(a.Taken.Ticket).Add(time.Duration(priority)*taskredis.HeadStart)))
}

// settled tells the observer of an attempt that had its lock and has ended, once the lock is free.
func (s *Server) settled(t *engine.Task, err error, lost bool) {
	if !t.Acquired {
		return
	}
	a := &attempt{Task: t}
	ev := a.event(EventReleased)
	if lost {
		ev.Kind = EventLost
	}
	ev.Fence, ev.Held, ev.Err = t.Fence, time.Since(t.Began), err
	s.observe(ev)
}

// parked tells the observer of a task that found its resource busy.
func (s *Server) parked(t *taskredis.ParkedTask, resource string) {
	ev := Event{Kind: EventParked, TaskID: t.ID, TaskKind: t.Kind, Queue: t.Queue, Resource: resource, Parked: t.Parks, Err: s.busyErr(resource)}
	if ev.Holder = store.NextHolder; t.Holder != "" {
		ev.Holder = lease.HolderOf(t.Holder)
	}
	if t.Replaced != "" {
		// Only tasks of one kind replace each other.
		s.observe(Event{Kind: EventReplaced, TaskID: t.Replaced, TaskKind: t.Kind, Queue: t.Queue, Resource: resource, Other: t.ID})
	}
	s.observe(ev)
}

// busyErr is why a task is parked: somebody else has the lock, or an operator has paused the resource.
func (s *Server) busyErr(resource string) error {
	if rule := s.ruleOf(resource); rule != nil && rule.Limit == 0 {
		return fmt.Errorf("%w: %s", lock.ErrBusy, rule.PausedBy())
	}
	return lock.ErrBusy
}

// recovered tells the observer of a task whose server has died.
func (s *Server) recovered(t taskredis.RecoveredTask, resource string) {
	s.cfg.Logger.Warn("a task whose worker died or was cut off has its place in its line again", "task_id", t.ID, "queue", t.Queue, "resource", resource)
	s.observe(Event{Kind: EventRecovered, TaskID: t.ID, TaskKind: t.Kind, Queue: t.Queue, Resource: resource})
}
