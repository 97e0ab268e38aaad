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
	key := c.Key(r.Resource)
	err := c.store.Leave(ctx, key, r.Waiter, store.Leave{Handoff: c.Handoff(uuid.NewString()), Rule: c.ruleOr(key, r.Rule)})
	if err != nil {
		return store.Failed("leave the wait queue of "+r.Resource, err)
	}
	return nil
}
