package lease

import (
	"context"
	"strings"

	"github.com/google/uuid"

	"github.com/sidingq/siding/internal/store"
)

// Handoff says how the store reserves a free lock in a call of this name, which is unique.
func (c *Client) Handoff(name string) store.Handoff {
	return store.Handoff{Nonce: name, Timeout: c.cfg.HandoffTimeout, QueueTTL: c.cfg.QueueTTL()}
}

// releaseBy says how the lock is released. The nonce is the unique part of the token: only one call takes the lock by that
// token, and only one releases the lock.
func (h *holding) releaseBy() store.Release {
	id, _, _ := strings.Cut(strings.TrimPrefix(h.token, tokenPrefix), ":")
	return store.Release{Handoff: h.client.Handoff(id), Fence: h.fence, Rule: h.client.ruleOr(h.key, h.rule)}
}

// Leave takes the waiter of r out of the wait queue. Only Resource, Waiter and Rule of r count. If the
// lock was reserved for the waiter, the lock is handed off. A waiter who is not queued is no error.
func (c *Client) Leave(ctx context.Context, r Request) error {
	return c.leave(ctx, r, "leave the wait queue of ")
}

// Look returns what is wrong with the store, nil if it answers. It changes nothing, as it takes somebody out of the wait queue who
// is in none.
func (c *Client) Look(ctx context.Context, r Request) error {
	r.Waiter = store.GoroutinePrefix + "nobody"
	return c.leave(ctx, r, "look at ")
}

func (c *Client) leave(ctx context.Context, r Request, what string) error {
	key := c.Key(r.Resource)
	err := c.store.Leave(ctx, key, r.Waiter, store.Leave{Handoff: c.Handoff(uuid.NewString()), Rule: c.ruleOr(key, r.Rule)})
	if err != nil {
		return store.Failed(what+r.Resource, err)
	}
	return nil
}
