package lock

import (
	"context"
	"fmt"
	"time"

	"github.com/sidingq/siding/internal/store"
)

// A Lease is one acquisition of a lock. It is never reused: a later lease of
// the same resource has another token, and an old one cannot touch it. Leases
// that a holder took on top of its first one share the first one's token, fence
// and renewal, see [Options.Reentrant]. The methods are safe for use by several
// goroutines.
type Lease struct {
	tenure *tenure

	// Guarded by tenure.mu.
	released bool
	cancels  []context.CancelCauseFunc // end the contexts of its work; set by Keep
}

// end ends the contexts of the work under l. tenure.mu is held.
func (l *Lease) end(cause error) {
	for _, cancel := range l.cancels {
		cancel(cause)
	}
}

// Resource returns what is locked.
func (l *Lease) Resource() string { return l.tenure.resource }

// Fence returns the lease's fencing token, see [Fence]; 0 where the [Store] has none.
func (l *Lease) Fence() int64 { return l.tenure.fence }

// HandedOff returns how long the lock was reserved for this waiter before it
// came for it, by the clock of the store, and whether it was reserved at all.
func (l *Lease) HandedOff() (time.Duration, bool) {
	return max(0, l.tenure.handOff), l.tenure.handOff >= 0
}

// Held returns how long ago the lock was taken.
func (l *Lease) Held() time.Duration { return time.Since(l.tenure.since) }

// Valid reports whether the lease can still be trusted: it is neither lost nor
// released, and its deadline has not passed. The deadline is checked against the
// monotonic clock and, as that one may stand still while a machine is
// suspended, against the wall clock too; so one that is set forward past the
// deadline ends the lease.
func (l *Lease) Valid() bool {
	l.tenure.mu.Lock()
	defer l.tenure.mu.Unlock()
	return !l.released && l.tenure.valid()
}

// Keep renews the lock every Config.RenewEvery until [Lease.Release] or
// [Lease.HandOff], and returns a context for the work that is done under it.
// The context carries the fencing token, and is the holder's, see [Options.Reentrant].
// It ends with ctx and with the lease; when the lock is lost it is
// cancelled with a cause that matches [ErrLost], before the store lets anybody
// else have the lock. Renewal does not stop when ctx ends: work that
// ignores its context is still protected until the lease is released. To end
// that, too, see [Options.MaxHold] and [Lease.Abandon]. On a machine that was
// suspended for longer than the lease lives, the context ends with the next
// renewal after it woke up. Keep may be called again, such as for each part of the work: every
// context that it has returned ends with the lease. After the lease has ended it returns an
// ended context.
func (l *Lease) Keep(ctx context.Context) context.Context { return l.tenure.keep(ctx, l) }

// Renew prolongs the lock by the TTL from now, for a holder who does without
// [Lease.Keep] or wants to be sure. The call is bounded by the deadline that
// stood before it, so a slow answer cannot stretch the lease: past that deadline
// the answer is [ErrLost] even if the store prolonged the lock, as it is after a
// release. Another error leaves the lease as it was.
func (l *Lease) Renew(ctx context.Context) error {
	if l.ended() {
		return fmt.Errorf("lock: renew %s: %w", l.tenure.resource, ErrLost)
	}
	return l.tenure.renew(ctx)
}

// ended reports whether the lease was released, of which its tenure may live on.
func (l *Lease) ended() bool {
	l.tenure.mu.Lock()
	defer l.tenure.mu.Unlock()
	return l.released
}

// Abandon stops the renewal without a release: the lease ends at its deadline,
// and with it the context of the work. It is for a holder that cannot be
// stopped and should not keep the resource for ever. It is so for all leases of
// the holder. After a release it does nothing.
func (l *Lease) Abandon() {
	if !l.ended() {
		l.tenure.endRenewal()
	}
}

// Release ends the lease. With the last lease of its holder it frees the lock,
// which goes to the first in line: to one who waits [InLine], or to a parked task,
// if the guard of its queue listens. Only those who have to be called by hand are
// passed over, see [Lease.HandOff].
//
// The error matches [ErrLost] when the lock was lost before. Another error is the
// store's: if it may pass, the call is sent again in the background until the store answers,
// the TTL has freed the lock, or the Locker is closed. A lock that was lost, and a release that
// failed, are both in the error. A second call does nothing, unless the store has answered none
// so far: then it is sent once more, and its error says what came of it. The call is sent even
// if ctx has ended already.
//
// A client that lost the answer sends the call again. That is no error if the first one passed
// the lock on to somebody in line, or if nobody has held the lock since. On Redis one case is
// left: nobody was in line, and a newcomer took the free lock in between. Then the
// answer is [ErrLost].
func (l *Lease) Release(ctx context.Context) error {
	_, err := l.tenure.release(ctx, l, l.line(false))
	return err
}

// line says how a release deals with the line.
func (l *Lease) line(byHand bool) store.Line { return l.tenure.line(nonceOf(l.tenure.token), byHand) }

// KeepFor releases the lock like [Lease.Release], but keeps it for the waiter of that name, who
// is in no line and comes by itself within the given time. Those in line go on waiting.
func (l *Lease) KeepFor(ctx context.Context, waiter string, within time.Duration) error {
	line := l.line(false)
	line.For, line.Grace = waiter, within
	_, err := l.tenure.release(ctx, l, line)
	return err
}

// HandOff releases the lock like [Lease.Release], but for the first in line
// whoever it is. When that is one with a name (Options.Waiter), the lock is kept
// for it for Config.Grace, and the caller has to call it, see [Reservation]. Only
// the last lease of a holder hands off: for the others the answer is nil.
func (l *Lease) HandOff(ctx context.Context) (*Reservation, error) {
	turn, err := l.tenure.release(ctx, l, l.line(true))
	return l.tenure.reservation(l.tenure.key, turn), err
}

// A Handed is what became of a lock that was released by [Lease.HandOver].
type Handed struct {
	// Next is who has to be called, as after [Lease.HandOff].
	Next *Reservation
	// Grant is set if a waiter has begun instead: it is that waiter's lock. Answer
	// is what summon has returned of the waiter, see redisstore.Calling.
	Grant  *Grant
	Answer []any
}

// HandOver is [Lease.HandOff] by a script of the caller's, which does more in the same step. send runs
// that script. It is given the KEYS and the ARGV of release_ahead, see redisstore.Release, and returns
// what release_ahead returns. HandOver calls send once; or not at all, if other leases of the holder
// keep the lock, or the Store is not the one on Redis. With a nil send it sends the Store's own
// script.
//
// If id is not "", the waiter whose turn it is may begin in the same step, and then has the lock. id
// makes the token of that waiter unique, and args are for summon. A call that the client sends again
// names the same waiter. If no answer comes at all, the lock stays with that waiter until its TTL.
func (l *Lease) HandOver(ctx context.Context, id string, args []any, send store.Send) (Handed, error) {
	t := l.tenure
	start := time.Now()
	line := l.line(true)
	line.Send = send
	if id != "" {
		line.Start = &store.Start{ID: id, TTL: t.cfg.TTL, Keep: t.cfg.grantKeep(), Args: args}
	}
	turn, err := t.release(ctx, l, line)
	if turn == nil || turn.Token == "" {
		return Handed{Next: t.reservation(t.key, turn)}, err
	}
	grant := &Grant{Resource: t.resource, Token: turn.Token, Fence: turn.Fence, HandOff: time.Since(start), Start: start}
	return Handed{Grant: grant, Answer: turn.Answer}, err
}
