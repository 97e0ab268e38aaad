package store

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrLost is lock.ErrLost: the caller's token does not hold the lock, or no longer.
	ErrLost = errors.New("lock: lease lost")

	// ErrStale is lock.ErrStale. Every [*StaleError] matches ErrStale.
	ErrStale = errors.New("lock: stale fence")
)

// prefix begins the text of each error of package lock.
const prefix = "lock: "

// A failure is an error with its causes, all of which it matches. The prefix comes once, although
// each of the causes may begin with it.
type failure struct {
	what   string
	causes []error
}

// Failed says what failed, and why. The text begins with the name of package lock.
func Failed(what string, causes ...error) error { return &failure{prefix + what, causes} }

// Because says that err has a cause.
func Because(err, cause error) error { return &failure{"", []error{err, cause}} }

// Error says what failed, and then each cause.
func (f *failure) Error() string {
	var text strings.Builder
	text.WriteString(f.what)
	for i, cause := range f.causes {
		if f.what == "" && i == 0 {
			text.WriteString(cause.Error())
			continue
		}
		text.WriteString(": ")
		text.WriteString(strings.TrimPrefix(cause.Error(), prefix))
	}
	return text.String()
}

// Unwrap returns the causes.
func (f *failure) Unwrap() []error { return f.causes }

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
