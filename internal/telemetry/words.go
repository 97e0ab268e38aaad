// Package telemetry is what all metrics share, whatever their library: the few words by which they sort tasks (classes of
// resources, kinds of tasks, and outcomes; none is the name of a resource), and the state of a whole fleet.
package telemetry

import (
	"errors"
	"strings"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/engine"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// Other is the word of all that has no word of its own.
const Other = "other"

// longest is the length of the longest word in bytes.
const longest = 64

// Class returns the class of a resource: the part before the first ":", such as order in
// order:536365. It is [Other] for a resource without a class, or with one of more than 64 bytes. Of several
// resources, as queue.AllOf has them, it is that of the first one.
func Class(resource string) string {
	resource = store.First(resource)
	i := strings.IndexByte(resource, ':')
	if i <= 0 || i > longest {
		return Other
	}
	return resource[:i]
}

// short returns s, or Other if s is empty or too long.
func short(s string) string {
	if s == "" || len(s) > longest {
		return Other
	}
	return s
}

// Word returns a copy of s that can be the value of a label: valid UTF-8 of at most 64 bytes. It is
// [Other] if s is empty or longer.
func Word(s string) string {
	return strings.ToValidUTF8(strings.Clone(short(s)), "?")
}

// The outcomes of a run of a handler.
const (
	Done    = "done"
	Failed  = "failed"
	Snoozed = "snoozed" // the handler found a second lock busy, or something missing that all tasks need, or the task was put back
	Lost    = "lost"    // the lock was lost while the handler ran
)

// Outcome returns the outcome of a run whose handler has returned err. lost says that the lock was lost.
func Outcome(err error, lost bool) string {
	switch {
	case lost:
		return Lost
	case err == nil:
		return Done
	case errors.Is(err, engine.ErrPutBack) || isOther(err):
		return Snoozed
	case errors.Is(err, asynq.SkipRetry) || errors.Is(err, asynq.RevokeTask):
		return Failed
	case errors.Is(err, lock.ErrBusy) || errors.Is(err, queue.ErrUnavailable):
		return Snoozed
	default:
		return Failed
	}
}

// isOther reports whether the task runs again under the lock that its payload names, which its header does not.
func isOther(err error) bool {
	_, other := errors.AsType[*engine.OtherResourceError](err)
	return other
}
