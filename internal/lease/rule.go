package lease

import (
	"context"
	"errors"
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

// HoldersOf returns the names of those who hold a lock that has permits.
func (c *Client) HoldersOf(ctx context.Context, resource string) ([]string, error) {
	limiter, ok := c.store.(store.Limiter)
	if !ok {
		return nil, store.Failed("list the holders of "+resource, errors.ErrUnsupported)
	}
	names, err := limiter.Holders(ctx, c.Key(resource))
	if err != nil {
		return nil, store.Failed("list the holders of "+resource, err)
	}
	return names, nil
}

// laters sweeps locks at the time at which their rates allow the next start. The rates of a lock keep
// its first waiter away until then, and nobody releases the lock at that time.
type laters struct {
	next func(*store.Reservation)

	mu  sync.Mutex
	due map[string]later // by the key of the lock
}

// A later is the next sweep of a lock.
type later struct {
	at    time.Time
	timer *time.Timer
}

// sweepLater sweeps the lock of key after some time, unless a sweep is due before that. A later sweep
// is moved forward: the rates may have changed. rule is that of the lock, unless the client has another
// one by then.
func (c *Client) sweepLater(key string, rule *store.Rule, after time.Duration) {
	if _, ok := c.store.(store.Sweeper); !ok || after <= 0 {
		return
	}
	key = store.LockOf(key)
	l, at := &c.later, time.Now().Add(after)
	l.mu.Lock()
	defer l.mu.Unlock()
	if before, ok := l.due[key]; ok {
		if !at.Before(before.at) {
			return
		}
		before.timer.Stop()
	}
	if l.due == nil {
		l.due = make(map[string]later)
	}
	l.due[key] = later{at, time.AfterFunc(after, func() { c.sweepNow(key, rule, at) })}
}

// sweepNow makes the sweep of a lock that was due at a time.
func (c *Client) sweepNow(key string, rule *store.Rule, at time.Time) {
	l := &c.later
	l.mu.Lock()
	if !l.due[key].at.Equal(at) {
		l.mu.Unlock()
		return // another one is due
	}
	delete(l.due, key)
	l.mu.Unlock()
	if !c.Begin() {
		return
	}
	defer c.End()
	ctx, cancel := context.WithTimeout(c.Closing(), CleanupTimeout)
	defer cancel()
	found, err := c.sweep(ctx, []store.Ruled{{Key: key, Rule: c.ruleOr(key, rule)}}, false, l.next != nil)
	if err != nil {
		return // the sweeper of the servers scans the lock, too
	}
	if l.next != nil {
		for _, r := range found[0].Next {
			l.next(r)
		}
	}
	c.sweepLater(key, rule, found[0].Later)
}
