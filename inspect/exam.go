package inspect

import (
	"slices"
	"time"

	"github.com/sidingq/siding/internal/lockredis"
	"github.com/sidingq/siding/internal/taskredis"
)

// settling is how long a worker may have a task before the task has its lock.
const settling = 2 * time.Second

// An exam has what is known of a task.
type exam struct {
	*taskredis.TaskLook

	state     State
	resources []string  // all that it needs
	resource  string    // the one that the verdict is about
	key       string    // of its lock, or of a permit of that; "" if the task knows of none
	lock      sight     // if there is a resource
	worker    *Worker   // has the task
	guarded   bool      // its server is, as far as is known
	started   time.Time // since when the worker has it; zero if that is not known
	gone      bool      // the worker of an active task is dead or cut off
	limit     *Limit    // that an operator has set for the resource, nil for none
	line      *HeldLine // if its line is held
	next      time.Time // from when on the rates of limit allow a start; zero for now
}

// holds reports whether the task holds its lock.
func (x *exam) holds() bool {
	return x.lock.State == lockredis.LookHeld && isHolder(x.Message, x.First, x.lock.Holder)
}

// finished reports whether the task is over: who has the lock of its resource now is no matter of its.
func (x *exam) finished() bool { return x.state == StateCompleted || x.state == StateArchived }

// waits reports whether the task waits for its lock.
func (x *exam) waits() bool { return x.state == StateWaiting || x.state == StateReady }

// stateOf returns the state of a task of which the rest is known.
func (x *exam) stateOf() State {
	switch x.State {
	case "active":
		return x.activeState()
	case "pending":
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
	settled := !x.started.IsZero() && x.Now.Sub(x.started) > settling
	switch {
	case x.Orphaned():
		return StateOrphaned
	case x.resource == "" || x.holds():
		return StateRunning
	case !settled:
		return StateStarting
	case !x.guarded:
		return StateRunning
	default:
		return StateLost
	}
}

func (x *exam) retryState() State {
	switch {
	case x.Holds:
		return StateRetrying
	case x.Waits && x.resource != "" && !x.lock.ready.IsZero() && x.lock.Position <= 1:
		return StateReady
	case x.Waits && x.resource != "":
		return StateWaiting
	case x.Ticket > 0, x.Message.LastFailedAt == 0: // a failure has taken the one, and set the other
		return StateSnoozed
	default:
		return StateRetrying
	}
}

// own makes the permit that the task holds the lock of x.
func (s *sight) own(m *taskredis.Message, first string) {
	n := slices.IndexFunc(s.Permits, func(p lockredis.Permit) bool {
		return !p.Reserved && isHolder(m, first, p.Name)
	})
	if n >= 0 {
		s.Looked = s.Of(s.Permits[n])
	}
}
