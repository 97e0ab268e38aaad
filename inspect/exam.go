package inspect

import (
	"time"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/redisstore"
)

// settling is how long a worker may have a task before the task has its lock, unless its policy lets the
// worker wait.
const settling = 2 * time.Second

// An exam has what is known of a task.
type exam struct {
	asynqredis.TaskLook

	state     State
	resource  string
	elsewhere bool              // the lock is in an external store
	lock      redisstore.Looked // if there is a resource
	worker    *Worker           // has the task
	guarded   bool              // its server is, as far as is known
	started   time.Time         // since when the worker has it; zero if that is not known
	patience  time.Duration     // for how long its worker may wait for the lock, by its policy
	gone      bool              // the worker of an active task is dead or cut off
	limit     *Limit            // that an operator has set for the resource, nil for none
	rated     bool              // the lock has rates, of an operator or of the servers
	next      time.Time         // from when on the rates of limit allow a start; zero for now
}

// waiter is the name under which the task waits.
func (x *exam) waiter() string { return asynqredis.WaiterName(x.Queue, x.ID) }

// holds reports whether the task holds its lock.
func (x *exam) holds() bool {
	return x.lock.State == redisstore.LookHeld && asynqredis.IsHolder(x.Message.Kind, x.ID, x.lock.Holder)
}

// reserved reports whether the lock is reserved for the task.
func (x *exam) reserved() bool {
	return x.lock.State == redisstore.LookReserved && x.lock.Holder == x.waiter()
}

// finished reports whether the task is over: who has the lock of its resource now is no matter of its.
func (x *exam) finished() bool { return x.state == StateCompleted || x.state == StateArchived }

// waits reports whether the task waits for its lock.
func (x *exam) waits() bool { return x.state == StateWaiting }

// stateOf returns the state of a task of which the rest is known.
func (x *exam) stateOf() State {
	switch x.State {
	case "active":
		return x.activeState()
	case "pending":
		if x.reserved() {
			return StateWoken
		}
		return StatePending
	case "retry":
		return x.retryState()
	case "scheduled":
		return StateScheduled
	case "archived":
		return StateArchived
	case "completed":
		return StateCompleted
	default:
		return StateAggregating
	}
}

func (x *exam) activeState() State {
	settled := !x.started.IsZero() && x.Now.Sub(x.started) > settling+x.patience
	switch {
	case x.Orphaned():
		return StateOrphaned
	case x.resource == "" || x.holds():
		return StateRunning
	case !settled:
		return StateStarting
	case x.elsewhere:
		return StateRunning // the lock of the external store counts, which is not known here
	case !x.guarded:
		return StateRunning
	default:
		return StateLost
	}
}

func (x *exam) retryState() State {
	switch {
	case !x.Parked:
		return StateRetrying
	case x.Lock == "":
		return StateParked
	case x.reserved():
		return StateWoken // whoever released the lock is about to wake the task
	default:
		return StateWaiting
	}
}
