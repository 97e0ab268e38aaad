package lock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/sidingq/siding/internal/store"
)

// A Reservation is a free lock that is kept for a waiter until a grace has
// passed. Whoever holds the Reservation calls the waiter, in whatever way
// waiters are called, and then says what came of it: [Locker.Called] or
// [Locker.PassOn]. If neither is said, the grace ends by itself.
type Reservation struct {
	Resource string
	Waiter   string // the name it joined under
	Ticket   int64  // its ticket
	key      string // of the lock
	value    string // what the store keeps in the lock's place
}

// reservation is turn, of the lock of key, for those who call waiters by hand; nil for nil.
func (l *Locker) reservation(key string, turn *store.Turn) *Reservation {
	if turn == nil {
		return nil
	}
	return &Reservation{
		Resource: strings.TrimPrefix(key, l.cfg.Prefix), Waiter: turn.Waiter, Ticket: turn.Ticket, key: key, value: turn.Value,
	}
}

// line says how the store is to deal with the line in one call.
func (l *Locker) line(nonce string, byHand bool) store.Line {
	return store.Line{Nonce: nonce, ByHand: byHand, Grace: l.cfg.Grace, Keep: l.cfg.lineKeep()}
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
	turn := store.Turn{Waiter: r.Waiter, Ticket: r.Ticket, Value: r.value}
	if err := l.store.Called(ctx, r.key, turn); err != nil {
		return fmt.Errorf("lock: called from the line of %s: %w", r.Resource, err)
	}
	return nil
}

// Leave takes a waiter out of the line of resource. Where the lock was reserved
// for it, it is passed on as by [Locker.PassOn]. It is not an error when the
// waiter is in no line.
func (l *Locker) Leave(ctx context.Context, resource, waiter string) (*Reservation, error) {
	return l.leave(ctx, l.key(resource), waiter, "", false, true)
}

// PassOn drops the waiter of r, who cannot come, and reserves the lock for the
// next in line, to be called in its turn; nil when nobody has to be. When r no
// longer stands it does nothing: the waiter keeps its place, see [Locker.Leave],
// and the answer is nil.
func (l *Locker) PassOn(ctx context.Context, r *Reservation) (*Reservation, error) {
	return l.leave(ctx, r.key, r.Waiter, r.value, false, true)
}

// SetAside is [Locker.PassOn] for a waiter of a group that is paused. All its group keep their
// tickets, and come back to their old places when one of them asks for the lock, or a
// [Locker.Sweep] brings them back.
func (l *Locker) SetAside(ctx context.Context, r *Reservation) (*Reservation, error) {
	return l.leave(ctx, r.key, r.Waiter, r.value, true, true)
}

func (l *Locker) leave(ctx context.Context, key, waiter, value string, paused, byHand bool) (*Reservation, error) {
	line := l.line(uuid.NewString(), byHand)
	line.Paused = paused
	turn, err := l.store.Leave(ctx, key, waiter, value, line)
	if err != nil {
		return nil, fmt.Errorf("lock: leave the line of %s: %w", strings.TrimPrefix(key, l.cfg.Prefix), err)
	}
	return l.reservation(key, turn), nil
}

// A Contended is a lock for which somebody waits, as [Locker.Sweep] has found it.
type Contended struct {
	Key     string        // of the lock
	Waiting bool          // somebody does
	Left    time.Duration // how long the lock stays as it is unless it is renewed; below 0 where that is not known
	Next    *Reservation  // whose turn it is, to be called; nil for nobody
}

// Sweep looks at the locks of keys, which may have another prefix than l's. One that nobody
// holds, and for which somebody waits, is passed on as by [Lease.HandOff]. resumed brings those
// back who were set aside. The error of a store that cannot do this matches
// [errors.ErrUnsupported].
func (l *Locker) Sweep(ctx context.Context, keys []string, resumed bool) ([]Contended, error) {
	sweeper, ok := l.store.(store.Sweeper)
	if !ok {
		return nil, fmt.Errorf("lock: sweep: %w", errors.ErrUnsupported)
	}
	swept, err := sweeper.Sweep(ctx, keys, resumed, l.line(uuid.NewString(), true))
	if err != nil {
		return nil, fmt.Errorf("lock: sweep: %w", err)
	}
	found := make([]Contended, len(swept))
	for i, s := range swept {
		found[i] = Contended{Key: keys[i], Waiting: s.Waiting, Left: s.Left, Next: l.reservation(keys[i], s.Next)}
	}
	return found, nil
}

// Missing returns those places whose waiters are in no line, by index. Their keys are those of
// locks, with [Config.Prefix]. rejoin puts the waiters back into their lines, each under its
// ticket.
func (l *Locker) Missing(ctx context.Context, places []store.Place, rejoin bool) ([]int, error) {
	sweeper, ok := l.store.(store.Sweeper)
	if !ok || len(places) == 0 {
		return nil, nil
	}
	found, err := sweeper.Missing(ctx, places, rejoin, l.cfg.lineKeep())
	if err != nil {
		return nil, fmt.Errorf("lock: look for waiters: %w", err)
	}
	var missing []int
	for i, m := range found {
		if m {
			missing = append(missing, i)
		}
	}
	return missing, nil
}

// ListenForTasks tells of the turns of parked tasks that a release could not call, because its
// process has no part in their queues: waiters named "siding-task:<group>:<rest>", of groups.
// It listens until ctx ends, and calls heard when it has begun to, and again whenever it may
// have missed some. A store that does not tell of them is an error that matches
// [errors.ErrUnsupported].
func (l *Locker) ListenForTasks(ctx context.Context, groups []string, heard func(), call func(*Reservation)) error {
	listener, ok := l.store.(store.TaskListener)
	if !ok {
		return fmt.Errorf("lock: listen for tasks: %w", errors.ErrUnsupported)
	}
	return listener.ListenForTasks(ctx, groups, heard, func(message string) {
		if r := l.announced(message); r != nil {
			call(r)
		}
	})
}

// announced reads a ticket, a lock's key and a reservation, nil when that is no such message.
func (l *Locker) announced(message string) *Reservation {
	ticket, rest, _ := strings.Cut(message, "\n")
	key, value, _ := strings.Cut(rest, "\n")
	parts := strings.SplitN(value, ":", 4) // prefix, nonce, time, waiter
	number, err := strconv.ParseInt(ticket, 10, 64)
	if err != nil || len(parts) != 4 {
		return nil
	}
	return l.reservation(key, &store.Turn{Waiter: parts[3], Ticket: number, Value: value})
}
