package queue

import "time"

// EventKind says what happened to a guarded task.
type EventKind int

// The kinds of event, in the order of a task's life.
const (
	// EventParked: the resource was busy; the task was put aside. Refusals
	// counts how often that has happened to it, 1 for the first time.
	EventParked EventKind = iota + 1
	// EventAcquired: the task holds its resource. HandOff is set when the lock
	// was handed on to it: the time since the release, by Redis's clock.
	EventAcquired
	// EventReleased: the handler has returned and the lock is free again, or
	// reserved for the next in line, who may have begun. Err is the handler's error.
	// A task that has succeeded may be gone from its queue by then.
	EventReleased
	// EventLost: the lease ended while the handler was running.
	EventLost
	// EventRecovered: the task's worker died or was cut off, and this server has
	// put the task back.
	EventRecovered
)

// An Event tells an observer what happened to a guarded task.
type Event struct {
	Kind     EventKind
	TaskID   string
	TaskKind string
	Queue    string
	Resource string
	Fence    int64
	Refusals int
	HandOff  time.Duration
	Held     time.Duration
	Err      error
}
