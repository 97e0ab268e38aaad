package lease

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/sidingq/siding/internal/store"
)

// WakeBy has next called with a waiter that the caller has to wake, if the store found out by itself that
// the waiter may come. Call WakeBy before the first lock is taken.
func (c *Client) WakeBy(next func(*store.Reservation)) { c.later.next = next }

// rule returns the rule of the lock of key, nil for none. key may be that of a permit.
func (c *Client) rule(key string) *store.Rule {
	limiter, limits := c.store.(store.Limiter)
	resource, ours := strings.CutPrefix(store.LockOf(key), c.cfg.Prefix)
	if !limits || !ours {
		return nil
	}
	return limiter.RuleOf(resource)
}

// ruleOr returns the rule of the lock of key, or else another one.
func (c *Client) ruleOr(key string, other *store.Rule) *store.Rule {
	if rule := c.rule(key); rule != nil {
		return rule
	}
	return other
}

// Limited reports whether the lock of resource has a rule.
func (c *Client) Limited(resource string) bool { return c.rule(c.Key(resource)) != nil }

// HoldersOf returns the names of those who hold a lock that has a rule.
func (c *Client) HoldersOf(ctx context.Context, resource string) ([]string, error) {
	names, err := c.store.(store.Limiter).Holders(ctx, c.Key(resource)) //nolint:errcheck,forcetypeassert // see Limited
	if err != nil {
		return nil, store.Failed("list the holders of "+resource, err)
	}
	return names, nil
}

// laters sweeps locks at the time at which their rates allow the next start. The rates of a lock keep
// its first waiter away until then, and nobody releases the lock at that time.
type laters struct {
	next func(*store.Reservation)

	mu   sync.Mutex
	keys map[string]struct{} // of the locks for which a sweep is due
}

// sweepLater sweeps the lock of key after some time, unless a sweep is due already. rule is that of the
// lock, unless the client has another one by then.
func (c *Client) sweepLater(key string, rule *store.Rule, after time.Duration) {
	key = store.LockOf(key)
	sweeper, ok := c.store.(store.Sweeper)
	if !ok || after <= 0 || !c.Begin() {
		return
	}
	defer c.End()
	if !c.later.begin(key) {
		return
	}
	c.Go(func() {
		ctx := c.Closing()
		end := c.Sleep(ctx, after, nil)
		c.later.end(key)
		if end != nil {
			return
		}
		call, cancel := context.WithTimeout(ctx, CleanupTimeout)
		defer cancel()
		found, err := c.sweep(call, sweeper, []store.Ruled{{Key: key, Rule: c.ruleOr(key, rule)}}, false, c.later.next != nil)
		if err != nil || len(found) == 0 {
			return // the sweeper of the servers scans the lock, too
		}
		if c.later.next != nil {
			for _, r := range found[0].Next {
				c.later.next(r)
			}
		}
		c.sweepLater(key, rule, found[0].Later)
	})
}

func (l *laters) begin(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, due := l.keys[key]; due {
		return false
	}
	if l.keys == nil {
		l.keys = make(map[string]struct{})
	}
	l.keys[key] = struct{}{}
	return true
}

func (l *laters) end(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.keys, key)
}
