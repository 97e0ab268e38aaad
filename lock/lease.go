package lock

import (
	"context"
	"time"

	"github.com/sidingq/siding/internal/lease"
)

// A Lease is one acquisition of a lock. It is renewed until whoever took it releases it
// ([Lease.Release]), until the lock is lost, or until [Options.MaxHold]. If [Lease.Context] has made
// contexts for its work, renewal also ends when all of these have ended. A new context, before the
// deadline, renews the Lease again.
//
// A program that never calls [Lease.Context], and forgets the release, keeps the lock for as long as
// it runs. [Locker.Do] cannot forget it. A Lease that is not renewed ends at its deadline, and its lock
// is free a TTL after the last renewal at most.
//
// A Lease is never reused. A later lease of the same resource has another token, so an old one
// cannot touch it. Leases that a holder took on top of its first share that one's token, fencing
// token and renewal; see [Options.Reentrant]. The methods are safe for use by several goroutines.
type Lease struct{ held *lease.Lease }

// Fence returns the lease's fencing token, see [Fence]; 0 if the [Store] has none.
func (l *Lease) Fence() int64 { return l.held.Fence() }

// Deadline returns when the lease ends unless it is renewed, and the zero time once it has ended.
// Until then nobody else can have the lock. The deadline is checked against the monotonic clock and
// against the wall clock. The monotonic one may stand still while a machine is suspended.
func (l *Lease) Deadline() time.Time { return l.held.Deadline() }

// Context returns a context for work under the lease. The context carries the fencing token, and is
// the holder's, see [Options.Reentrant]. The context ends with ctx and with the lease. If the lock
// is lost, the cause matches [ErrLost], and the context ends before anybody else can have the lock.
// On a machine that was suspended for longer than the lease lives, the context ends at the next
// renewal, or with [Options.NoRenew] within [Config].RenewEvery. Context may be called any number of
// times, such as for each part of the work. After the lease has ended it returns an ended context.
//
// Once all contexts of the lease have ended, the lease is not renewed. So work must end with its
// context, or use [Locker.Do]. A ctx that never ends, such as [context.Background], never ends the
// renewal. Release such a lease, and set [Options.MaxHold] in case that is forgotten.
func (l *Lease) Context(ctx context.Context) context.Context {
	return l.held.Context(ctx)
}

// Renew asks the store, and prolongs the lock by the TTL from now. A lease is renewed by itself:
// call Renew before a step that must not run without the lock. [ErrLost] says that the lease has
// ended. The lock was lost, the deadline passed before the store answered, or the lease was
// released. Another error leaves the lease as it was.
func (l *Lease) Renew(ctx context.Context) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	return l.held.Renew(ctx)
}

// Release ends the lease. The last lease of its holder frees the lock, which goes to the first in
// the wait queue.
//
// The error matches [ErrLost] if the lock was lost before. Another error is the store's. If that
// error may pass, Release sends the call again in the background. That ends when the store answers,
// when the TTL has freed the lock and a minute has passed, or when the Locker is closed. If the lock was lost and the call failed,
// the error tells of both. Release sends the call even if ctx has ended, and gives up after 3 s,
// see [Redis]. Before that it waits for a renewal under way, until the deadline of the lease at
// the latest.
//
// A lease of [Options.NoRenew] that has reached its end is no loss: Release is then no error, whatever
// the store says.
//
// A second Release does nothing if the store has answered the first. Otherwise it sends the call once
// more, and returns what came of that.
//
// A client that lost the answer sends the call again. That is no error if the first one handed the
// lock off, or if nobody has held the lock since. On Redis one case is left: nobody was queued, and
// a newcomer took the free lock in between. Then the error is [ErrLost].
func (l *Lease) Release(ctx context.Context) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	if err := l.held.Release(ctx); err != nil && !l.held.Over() {
		return err
	}
	return nil
}
