package telemetry

import (
	"errors"

	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// The outcomes of a run of a handler.
const (
	Done   = "done"
	Failed = "failed"
	Parked = "parked" // the handler found a second lock busy, or something missing that all tasks need
	Lost   = "lost"   // the lock was lost while the handler ran
)

// Outcome returns the outcome of a run whose handler has returned err. lost says that the lock was lost.
func Outcome(err error, lost bool) string {
	switch {
	case lost:
		return Lost
	case err == nil:
		return Done
	case errors.Is(err, lock.ErrBusy) || errors.Is(err, queue.ErrUnavailable):
		return Parked
	default:
		return Failed
	}
}
