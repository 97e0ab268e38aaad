package lease

import (
	"strings"

	"github.com/sidingq/siding/internal/store"
)

// ruleOr returns the rule that all who use the store keep to for the lock of key, or else another one; nil for none. key may
// be that of a permit.
func (c *Client) ruleOr(key string, other *store.Rule) *store.Rule {
	limiter, limits := c.store.(store.Limiter)
	resource, ours := strings.CutPrefix(store.LockOf(key), c.cfg.KeyPrefix())
	if limits && ours {
		if rule := limiter.RuleOf(resource); rule != nil {
			return rule
		}
	}
	return other
}
