package lock

import (
	"errors"
	"fmt"
)

// What a place that compares fencing tokens answers, see packages lock/sqlfence
// and lock/redisfence.
var (
	// ErrStale matches, with errors.Is, every [*StaleError].
	ErrStale = errors.New("lock: stale fence")

	// ErrNoFence says that a write came without a fencing token: the work does
	// not run under a lock, or its context did not come through.
	ErrNoFence = errors.New("lock: no fence")
)

// A StaleError says that a write was refused because a later holder of the lock
// has been there. The work may be tried again under a new acquisition of the
// lock, and from its reading on.
type StaleError struct {
	Place string // what refused: a table's row, a Redis key
	Fence int64  // what the refused writer came with
	Seen  int64  // the highest that the place has seen
}

// Error names the place and both fences.
func (e *StaleError) Error() string {
	return fmt.Sprintf("lock: %s has seen fence %d, refused the older %d", e.Place, e.Seen, e.Fence)
}

// Is reports whether target is [ErrStale].
func (e *StaleError) Is(target error) bool { return target == ErrStale }
