package lock

import (
	"context"
	"runtime"
	"time"

	"github.com/sidingq/siding/internal/lease"
)

// A Lease is one acquisition of a lock. A Lease is renewed until one of these ends that:
//
//   - [Lease.Release], or [Lease.Detach];
//   - the loss of the lock;
//   - [Options.MaxHold];
//   - the end of all contexts that [Lease.Context] returned, if there was one;
//   - the garbage collector, once the program has dropped the Lease and all of its contexts. The
//     collector does not find a Lease one of whose contexts was made from another.
//
// A Lease that is not renewed ends at its deadline. The lock is then free a TTL after the last
// renewal at most. A new context, before the deadline, renews the Lease again. A Lease without any
// context is renewed until its release, whatever becomes of the context of [Locker.Acquire].
// [Locker.Do] protects its function until the function returns, also after the end of its context.
//
// A Lease is never reused. A later lease of the same resource has another token, so an old one
// cannot touch it. Leases that a holder took on top of its first share that one's token, fencing
// token and renewal; see [Options.Reentrant]. The methods are safe for use by several goroutines.
type Lease struct{ held *lease.Lease }

// newLease returns the Lease that a program gets. The renewal refers to held alone. So a Lease that
// the program has dropped is found, and is renewed no more.
func newLease(held *lease.Lease) *Lease {
	l := &Lease{held}
	runtime.AddCleanup(l, (*lease.Lease).Drop, held)
	return l
}

// leaseKey is the key under which a context refers to its Lease. So the Lease is not dropped while
// somebody works under it.
type leaseKey struct{}

// Fence returns the lease's fencing token, see [Fence]; 0 if the [Store] has none.
func (l *Lease) Fence() int64 { return l.held.Fence() }

// Token returns the secret by which [Locker.Resume] takes over the lease, in this process or another
// one. Whoever knows it can release the lock.
func (l *Lease) Token() string { return l.held.Token() }

// Deadline returns when the lease ends unless it is renewed, and the zero time once it has ended.
// Until then nobody else can have the lock. The deadline is checked against the monotonic clock and
// against the wall clock. The monotonic one may stand still while a machine is suspended.
func (l *Lease) Deadline() time.Time { return l.held.Deadline() }

// Context returns a context for work under the lease. The context carries the fencing token, and is
// the holder's, see [Options.Reentrant]. The context ends with ctx and with the lease. If the lock
// is lost, the cause matches [ErrLost], and the context ends before anybody else can have the lock.
// On a machine that was suspended for longer than the lease lives, the context ends at the next
// renewal. Context may be called any number of times, such as for each part of the work. After the
// lease has ended it returns an ended context.
//
// Once all contexts of the lease have ended, the lease is not renewed. So work must end with its
// context, or use [Locker.Do]. A ctx that never ends, such as [context.Background], never ends the
// renewal. Release such a lease, and set [Options.MaxHold] in case that is forgotten.
func (l *Lease) Context(ctx context.Context) context.Context {
	return context.WithValue(l.held.Context(ctx), leaseKey{}, l)
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

// Detach stops the renewal without a release, for all leases of the holder. The lease ends at its
// deadline, and so do its contexts. Use it before [Locker.Resume] elsewhere, or for work that cannot
// be stopped and should not keep the resource for ever. After a release it does nothing.
func (l *Lease) Detach() { l.held.Detach() }

// Release ends the lease. The last lease of its holder frees the lock, which goes to the first in
// the wait queue.
//
// The error matches [ErrLost] if the lock was lost before. Another error is the store's. If that
// error may pass, Release sends the call again in the background. That ends when the store answers,
// the TTL has freed the lock, or the Locker is closed. If the lock was lost and the call failed,
// the error tells of both. Release sends the call even if ctx has ended, and gives up after 3 s,
// see [Redis].
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
	return l.held.Release(ctx)
}
