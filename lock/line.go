package lock

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"
)

// A Reservation is a free lock that is kept for a waiter until a grace has
// passed. Whoever holds the Reservation calls the waiter, in whatever way
// waiters are called, and then says what came of it: [Locker.Called] or
// [Locker.PassOn]. If neither is said, the grace ends by itself.
type Reservation struct {
	Resource string
	Waiter   string // the name it joined under
	Ticket   int64  // its ticket
	value    string // what the store keeps in the lock's place
}

// reservation is turn for those who call waiters by hand; nil for nil.
func reservation(resource string, turn *Turn) *Reservation {
	if turn == nil {
		return nil
	}
	return &Reservation{Resource: resource, Waiter: turn.Waiter, Ticket: turn.Ticket, value: turn.Value}
}

// line says how the store is to deal with the line in one call.
func (c *core) line(nonce string, byHand bool) Line {
	return Line{Nonce: nonce, ByHand: byHand, Grace: c.cfg.Grace, Keep: c.cfg.lineKeep()}
}

// nonceOf returns what is unique in a token. Only one call takes the lock by it,
// and only one releases it.
func nonceOf(token string) string {
	id, _, _ := strings.Cut(strings.TrimPrefix(token, tokenPrefix), ":")
	return id
}

// Called takes the waiter of r out of the line, because it is on its way. It
// does nothing when the reservation no longer stands: the waiter then keeps
// its place.
func (l *Locker) Called(ctx context.Context, r *Reservation) error {
	turn := Turn{Waiter: r.Waiter, Ticket: r.Ticket, Value: r.value}
	if err := l.store.Called(ctx, l.key(r.Resource), turn); err != nil {
		return fmt.Errorf("lock: called from the line of %s: %w", r.Resource, err)
	}
	return nil
}

// Leave takes a waiter out of the line of resource. Where the lock was reserved
// for it, it is passed on as by [Locker.PassOn]. It is not an error when the
// waiter is in no line.
func (l *Locker) Leave(ctx context.Context, resource, waiter string) (*Reservation, error) {
	return l.leave(ctx, resource, waiter, "", true)
}

// PassOn drops the waiter of r, who cannot come, and reserves the lock for the
// next in line, to be called in its turn; nil when nobody has to be. When r no
// longer stands it does nothing: the waiter keeps its place, see [Locker.Leave],
// and the answer is nil.
func (l *Locker) PassOn(ctx context.Context, r *Reservation) (*Reservation, error) {
	return l.leave(ctx, r.Resource, r.Waiter, r.value, true)
}

func (c *core) leave(ctx context.Context, resource, waiter, value string, byHand bool) (*Reservation, error) {
	turn, err := c.store.Leave(ctx, c.key(resource), waiter, value, c.line(uuid.NewString(), byHand))
	if err != nil {
		return nil, fmt.Errorf("lock: leave the line of %s: %w", resource, err)
	}
	return reservation(resource, turn), nil
}
