package queue

import "time"

// EventKind says what happened to a guarded task.
type EventKind int

// The kinds of event, in the order of a task's life.
const (
	// EventParked: the resource was busy, and the task was parked. Parked says for which time,
	// from 1 on.
	EventParked EventKind = iota + 1
	// EventAcquired: the task holds the lock of its resource. HandOff is set if the lock was
	// handed off to the task.
	EventAcquired
	// EventReleased: the handler has returned, and the lock is free or reserved for the next
	// waiter, who may have started. Err is the handler's error. A task that has succeeded may
	// be gone from its queue by then.
	EventReleased
	// EventLost: the lock was lost while the handler ran.
	EventLost
	// EventRecovered: the task's worker died or was cut off, and this server has requeued the
	// task.
	EventRecovered
)

// An Event says to [GuardConfig.Observe] what happened to a guarded task.
type Event struct {
	Kind     EventKind
	TaskID   string
	TaskKind string
	Queue    string        // asynq's, as in [Receipt]
	Resource string        // of the task
	Fence    int64         // the fencing token, from EventAcquired on; 0 on a Store without
	Parked   int           // only EventParked: how often the task has been parked for a busy resource
	HandOff  time.Duration // only EventAcquired: from the release until then, by Redis's clock
	Held     time.Duration // only EventReleased and EventLost: for how long the task had the lock
	Err      error         // why the task is parked, or the handler's error
}
