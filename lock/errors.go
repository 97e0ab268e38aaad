package lock

import (
	"errors"
	"fmt"
	"time"

	"github.com/sidingq/siding/internal/store"
)

// The package keeps three kinds of failure apart. Busy: somebody else holds
// the lock (a [*BusyError]). Lost: we held it and no longer do ([ErrLost]).
// Broken: the store could not be asked or did not answer (every other error; a
// failed attempt may then have taken the lock for a moment, see [Locker.Acquire]).
var (
	// ErrBusy matches, with errors.Is, every [*BusyError].
	ErrBusy = errors.New("lock: busy")

	// ErrLost says that a lease ended before it was released: it expired, was
	// deleted, or could not be renewed in time. It is the cause of a context
	// that [Lease.Keep] cancels, and the answer of a release that came too late.
	ErrLost = store.ErrLost

	// ErrMaxHold says that a lease ended because it had been held for as long as
	// [Options.MaxHold] allows. It matches [ErrLost].
	ErrMaxHold = fmt.Errorf("%w: held for the longest time allowed", ErrLost)

	// ErrReentry says that the caller's own context holds the lock, and that the caller has
	// not said [Options.Reentrant]. It is a mistake of the program and does not match
	// [ErrBusy]: nobody else has the lock, and no wait and no retry ends this.
	ErrReentry = errors.New("lock: this context holds the lock already; set Options.Reentrant to take it again")

	// ErrClosed says that the Locker was closed.
	ErrClosed = errors.New("lock: closed")

	// ErrResource says that a name cannot be a resource: empty, too long, or
	// holding a brace or a control character.
	ErrResource = errors.New("lock: bad resource name")
)

// A BusyError says that somebody else holds, or has been promised, the lock.
type BusyError struct {
	// Resource is what was asked for.
	Resource string
	// Holder describes the holder: the label that its Locker was given,
	// "another program" for a value of the plain protocol, "the next in line"
	// while the lock is reserved, or why nobody has it yet.
	Holder string
	// Since is when the holder took the lock, by the clock of the store, or by this
	// process' own for a holder in it; zero where it cannot be known.
	Since time.Time
	// Remaining is how long the lock lives on if nobody renews it.
	Remaining time.Duration
	// Foreign is true for a holder on the plain protocol, which will call
	// nobody when it releases.
	Foreign bool
	// Split is true where the votes of a quorum were split: it is not known whether
	// anybody has the lock. Holder is who may.
	Split bool
	// Place is this waiter's place in line, 1 for the head; 0 when it is in none.
	Place int
	// Ticket is this waiter's ticket; it stays the same until the waiter
	// leaves the line. 0 when it is in none.
	Ticket int64
	// Waited is how long this waiter has held its ticket.
	Waited time.Duration
	// Next is set when this attempt found a free lock whose turn was somebody
	// else's: the lock is now reserved for Next, who must be called.
	Next *Reservation
}

// Error names the resource, the holder and the time left.
func (e *BusyError) Error() string {
	return fmt.Sprintf("lock %s is held by %s (%.1f s left)", e.Resource, e.Holder, e.Remaining.Seconds())
}

// Is reports whether target is [ErrBusy].
func (e *BusyError) Is(target error) bool { return target == ErrBusy }
