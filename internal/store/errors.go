package store

import (
	"errors"
	"fmt"
)

var (
	// ErrLost is lock.ErrLost: the caller's token does not hold the lock, or no longer.
	ErrLost = errors.New("lock: lease lost")

	// ErrStale is lock.ErrStale. Every [*StaleError] matches ErrStale.
	ErrStale = errors.New("lock: stale fence")
)

// A StaleError says that a write was refused because a later holder of the lock has written
// before.
type StaleError struct {
	Place string // what refused: a table's row, a Redis key
	Fence int64  // of the refused writer
	Seen  int64  // the highest that the place has seen
}

// Error names the place and both fences.
func (e *StaleError) Error() string {
	return fmt.Sprintf("lock: %s has seen fence %d, refused the older %d", e.Place, e.Seen, e.Fence)
}

// Is reports whether target is [ErrStale].
func (e *StaleError) Is(target error) bool { return target == ErrStale }
