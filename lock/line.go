package lock

import (
	"context"
	"errors"
	"fmt"
)

// A Reservation is a free lock that is kept for a waiter until a grace has
// passed. Whoever holds the Reservation calls the waiter, in whatever way
// waiters are called, and then says what came of it: [Locker.Called] or
// [Locker.PassOn]. If neither is said, the grace ends by itself.
type Reservation struct {
	Resource string
	Waiter   string // the name it joined under
	Ticket   int64  // its ticket
	value    string // the value of the lock's key
}

// Called takes the waiter of r out of the line, because it is on its way. It
// does nothing when the reservation no longer stands: the waiter then keeps
// its place.
func (l *Locker) Called(ctx context.Context, r *Reservation) error {
	return l.leave(ctx, r.Resource, r.Waiter, r.value)
}

// Leave takes a waiter out of the line of resource. It is not an error when
// the waiter is in none.
func (l *Locker) Leave(ctx context.Context, resource, waiter string) error {
	return l.leave(ctx, resource, waiter, "")
}

func (l *Locker) leave(ctx context.Context, resource, waiter, reservation string) error {
	k := l.keys(resource)
	if err := leaveScript.Run(ctx, l.rdb, []string{k.lock, k.line}, waiter, reservation).Err(); err != nil {
		return fmt.Errorf("lock: leave the line of %s: %w", resource, err)
	}
	return nil
}

// PassOn drops the waiter of r, who cannot come, and reserves the lock for the
// next in line; nil when nobody is. When r no longer stands it does nothing: the
// waiter keeps its place, see [Locker.Leave], and the answer is nil.
func (l *Locker) PassOn(ctx context.Context, r *Reservation) (*Reservation, error) {
	next, err := l.release(ctx, r.Resource, r.value, l.cfg.Grace, r.Waiter)
	if errors.Is(err, ErrLost) {
		return nil, nil //nolint:nilnil // lapsed or taken meanwhile: not ours to pass on
	}
	return next, err
}
