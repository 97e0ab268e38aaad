package lease

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/sidingq/siding/internal/store"
)

// handoff says how the store reserves a free lock in one call.
func (c *Client) handoff(nonce string, stepwise bool) store.Handoff {
	return store.Handoff{Nonce: nonce, Stepwise: stepwise, Timeout: c.cfg.HandoffTimeout, QueueTTL: c.cfg.QueueTTL()}
}

// releaseBy says how the lock is released. The nonce is the unique part of the token. Only one call
// takes the lock by that token, and only one releases the lock. The
// trace of the holder follows.
func (h *holding) releaseBy(stepwise bool) store.Release {
	id, _, _ := strings.Cut(strings.TrimPrefix(h.token, tokenPrefix), ":")
	h.mu.Lock()
	defer h.mu.Unlock()
	return store.Release{Handoff: h.client.handoff(store.WithTrace(id, h.trace), stepwise), Fence: h.fence, Rule: h.client.ruleOr(h.key, h.rule)}
}

// Confirm takes the waiter of r out of the wait queue, because it is on its way. If the reservation
// no longer stands, Confirm does nothing, and the waiter keeps its position.
func (c *Client) Confirm(ctx context.Context, r *store.Reservation) error {
	if err := c.store.Confirm(ctx, *r); err != nil {
		return store.Failed("confirm a waiter of "+c.Resource(r.Key), err)
	}
	return nil
}

// unlessLater returns next, unless it only says when the rates of its lock allow the next start. rule is
// nil for that of the client.
func (c *Client) unlessLater(next *store.Reservation, rule *store.Rule) *store.Reservation {
	if next == nil || next.Later == 0 {
		return next
	}
	c.sweepLater(next.Key, rule, next.Later)
	return nil
}

// Leave takes the waiter of r out of the wait queue. Only Resource, Waiter and Rule of r count. If the
// lock was reserved for the waiter, the lock is handed off, see [Client.Drop]. A waiter who is not
// queued is no error.
func (c *Client) Leave(ctx context.Context, r Request) (*store.Reservation, error) {
	return c.leave(ctx, &store.Reservation{Key: c.Key(r.Resource), Waiter: r.Waiter}, r.Rule, false)
}

// Drop drops the waiter of r, who cannot come. It reserves the lock for the next in the wait queue
// that the caller has to wake; nil if there is none. If r no longer stands, Drop does nothing, and
// the waiter keeps its position. If the waiter has another ticket by now than that of r, Drop returns r
// with that ticket: the caller has to wake the waiter by that.
//
// If the waiter's group is paused, all of the group keep their tickets. They come back to their old
// positions when one of them asks for the lock, or a [Client.Sweep] brings them back.
func (c *Client) Drop(ctx context.Context, r *store.Reservation, paused bool) (*store.Reservation, error) {
	return c.leave(ctx, r, nil, paused)
}

// leave drops the waiter of r. rule is that of the lock, unless the client has another one.
func (c *Client) leave(ctx context.Context, r *store.Reservation, rule *store.Rule, paused bool) (*store.Reservation, error) {
	_, listens := store.ListenerOf(r.Waiter)
	next, err := c.store.Leave(ctx, r.Key, r.Waiter, store.Leave{
		Handoff: c.handoff(uuid.NewString(), !listens), Rule: c.ruleOr(r.Key, rule), Reservation: r.Value, Ticket: r.Ticket, Paused: paused,
	})
	if err != nil {
		return nil, store.Failed("leave the wait queue of "+c.Resource(r.Key), err)
	}
	return c.unlessLater(next, rule), nil //nolint:contextcheck // it sweeps for all who wait
}

// overdue is how old a reservation is whose waiter should have been woken. Whoever made it wakes the
// waiter within milliseconds, unless its answer was lost.
const overdue = time.Second

// Sweep scans the locks of keys, which may have another prefix than c's. A lock that may be held, and
// for which somebody waits, is handed off. resumed brings those back who were parked with their
// group. A waiter that nobody has woken for a second after its lock was reserved is named as well. The
// error of a store that cannot sweep matches [errors.ErrUnsupported].
func (c *Client) Sweep(ctx context.Context, keys []string, resumed bool) ([]store.Swept, error) {
	locks := make([]store.Ruled, len(keys))
	for i, key := range keys {
		locks[i] = store.Ruled{Key: key, Rule: c.rule(key)}
	}
	found, err := c.sweep(ctx, locks, resumed, true)
	for i, f := range found {
		c.sweepLater(keys[i], nil, f.Later) //nolint:contextcheck // likewise
	}
	return found, err
}

func (c *Client) sweep(ctx context.Context, locks []store.Ruled, resumed, stepwise bool) ([]store.Swept, error) {
	sweeper, ok := c.store.(store.Sweeper)
	if !ok {
		return nil, store.Failed("sweep", errors.ErrUnsupported)
	}
	h := c.handoff(store.RecoveryNonce+uuid.NewString(), stepwise)
	h.Overdue = overdue
	found, err := sweeper.Sweep(ctx, locks, resumed, h)
	if err != nil {
		return nil, store.Failed("sweep", err)
	}
	return found, nil
}

// Missing reports, for each waiter, whether it is in no wait queue. The keys of waiters are those of
// locks, with the prefix. rejoin queues the missing ones again, each under its ticket.
func (c *Client) Missing(ctx context.Context, waiters []store.Queued, rejoin bool) ([]bool, error) {
	sweeper, ok := c.store.(store.Sweeper)
	if !ok || len(waiters) == 0 {
		return nil, nil
	}
	found, err := sweeper.Missing(ctx, waiters, rejoin, c.cfg.QueueTTL())
	if err != nil {
		return nil, store.Failed("look for waiters", err)
	}
	return found, nil
}

// ListenForTasks tells of reservations for parked tasks that a release could not wake. Its process
// has no part in their queues. Such waiters have names like "siding-task:<group>:<rest>", with one
// of groups. ListenForTasks ends with ctx. It calls heard when it has begun to listen, and again
// whenever it may have missed some. The error of a store that does not tell of them matches
// [errors.ErrUnsupported].
func (c *Client) ListenForTasks(ctx context.Context, groups []string, heard func(), wake func(*store.Reservation)) error {
	listener, ok := c.store.(store.TaskListener)
	if !ok {
		return store.Failed("listen for tasks", errors.ErrUnsupported)
	}
	return listener.ListenForTasks(ctx, groups, heard, func(message string) {
		if r := announced(message); r != nil {
			wake(r)
		}
	})
}

// announced reads a ticket, a lock's key and a reservation; nil if message is no such message.
func announced(message string) *store.Reservation {
	ticket, rest, _ := strings.Cut(message, "\n")
	key, value, _ := strings.Cut(rest, "\n")
	parts := strings.SplitN(value, ":", 4) // prefix, nonce, time, waiter
	number, err := strconv.ParseInt(ticket, 10, 64)
	if err != nil || len(parts) != 4 {
		return nil
	}
	return &store.Reservation{Key: key, Waiter: parts[3], Ticket: number, Value: value}
}
