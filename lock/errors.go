package lock

import (
	"time"

	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/store"
)

// The errors of this package. Every other error says that the store could not be asked or did not
// answer; a failed attempt may then have taken the lock for a moment, see [Locker.Acquire].
var (
	// ErrBusy says that somebody else holds the lock. Every [*BusyError] matches ErrBusy. Try again
	// later, or wait for longer: see [Options.Wait].
	ErrBusy = lease.ErrBusy

	// ErrLost says that a lease ended before its release. It expired, was deleted, was held for
	// longer than [Options.MaxHold], or could not be renewed in time. ErrLost is the cause of the
	// contexts of a lost lease, and the error of a release that came too late. Undo the work, or
	// begin it again under a new lease: somebody else may be at work.
	ErrLost = store.ErrLost

	// ErrReentry says that the caller's own context holds the lock, and the caller has not set
	// [Options.Reentrant]. That is a mistake of the program. ErrReentry does not match [ErrBusy],
	// as no wait and no retry ends it. Set Reentrant, or take the lock once.
	ErrReentry = lease.ErrReentry

	// ErrClosed says that [Locker.Close] was called, before the call or while it waited. Close the
	// Locker after the last call.
	ErrClosed = lease.ErrClosed

	// ErrResource says that a name cannot be a resource. The name is empty, longer than 512 bytes,
	// not UTF-8, holds a control character, or has braces that are not in pairs, or whose first pair is
	// empty. Nor may it have ":siding:" in it, or "siding:" and braces, as keys beside a lock do. A
	// name like "user:{42}:cart" is good: in a Redis Cluster it is in the slot of "42". Choose another
	// name.
	ErrResource = store.ErrResource

	// ErrStale says that a write was refused, as a later holder of the lock has written before. See
	// lock/sqlfence and lock/redisfence. Take the lock again, and begin from reading.
	ErrStale = store.ErrStale

	// ErrNoFence says that a write came without a fencing token. The work does not run under a
	// lock, or not with its context. Use the context of [Locker.Do], of [Lease.Context], or of the task.
	ErrNoFence = lease.ErrNoFence
)

// A BusyError says that somebody else holds the lock, or has it reserved.
type BusyError struct {
	// Resource is what was asked for.
	Resource string
	// Holder is the [Options.Holder] of the holder, or "another program" for a value of the plain
	// protocol. While the lock is reserved, Holder is "the next in the wait queue". Else it says
	// why nobody has the lock yet.
	Holder string
	// Since is when the holder took the lock, by the clock of the store. For a holder in this
	// process the clock is that of the process. Since is zero if the time is not known.
	Since time.Time
	// Remaining is how long the lock lives on if nobody renews it, or in how long its rates allow
	// another start.
	Remaining time.Duration
	// Foreign says that the holder is another program, which uses the plain protocol and wakes
	// nobody when it releases.
	Foreign bool
	// Split says that the votes of a quorum were split. Then it is not known whether anybody has
	// the lock, and Holder is who may.
	Split bool
	// Position is the caller's position in the wait queue, 1 for the head; 0 if it is not queued.
	Position int
	// Holders is how many hold the lock, or have it reserved, if it has an [Options.Limit] or rates.
	// Else it is 0.
	Holders int
}

// Error names the resource, the holder and the time left.
func (e *BusyError) Error() string { return (*lease.BusyError)(e).Error() }

// Is reports whether target is [ErrBusy].
func (e *BusyError) Is(target error) bool { return target == ErrBusy }
