// Package limits knows which rule a lock has: how many may hold it at once, and how often one may
// start. A program has rules, and operators override them in Redis.
package limits

import (
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/sidingq/siding/internal/store"
)

// A Table has rules by pattern.
type Table struct {
	rules     map[string]*store.Rule // of the program
	overrides map[string]Override
	most      int // holders that an override may allow; 0 for any number
}

// CheckPattern returns an error if a rule cannot have this pattern: a resource such as "account:42", or text that ends in a
// colon, and then "*", such as "account:*", which fits all that begin so. "*" alone fits all resources. Names that begin with "siding-" have no rule, see [Table.Rule].
func CheckPattern(pattern string) error {
	if strings.HasPrefix(pattern, ownPrefix) {
		return fmt.Errorf("want a name that does not begin with %q, as such resources have no limit, have %q", ownPrefix, pattern)
	}
	prefix, many := strings.CutSuffix(pattern, "*")
	if many && prefix == "" {
		return nil
	}
	if many && !strings.HasSuffix(prefix, ":") || strings.Contains(prefix, "*") {
		return fmt.Errorf(`want a resource, a pattern that ends in ":*" such as "account:*", or "*", have %q`, pattern)
	}
	if err := store.CheckResource(prefix); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "lock: "))
	}
	return nil
}

// New returns a table of a program's rules, which are valid.
func New(rules map[string]*store.Rule) *Table { return &Table{rules: rules} }

// AtMost returns the table with a bound: an override that allows more holders counts as one that allows so many.
func (t *Table) AtMost(holders int) *Table { return &Table{rules: t.rules, most: holders} }

// With returns the table with these overrides in place of the earlier ones. It returns t itself if they
// are the same.
func (t *Table) With(overrides map[string]Override) *Table {
	if maps.EqualFunc(t.overrides, overrides, Override.equal) {
		return t
	}
	return &Table{rules: t.rules, overrides: overrides, most: t.most}
}

// ownPrefix begins the names of resources that Siding takes for itself. No rule concerns them.
const ownPrefix = "siding-"

// Rule returns the rule of a resource, nil for none. An override counts more than a rule of the
// program. Of several patterns the longest counts.
func (t *Table) Rule(resource string) *store.Rule {
	if len(t.rules)+len(t.overrides) == 0 || strings.HasPrefix(resource, ownPrefix) {
		return nil
	}
	_, rule := find(t.rules, resource)
	if _, o := find(t.overrides, resource); o.Pattern != "" {
		rule = o.replacing(rule)
	}
	return rule.Plain()
}

// Override returns the override of a resource; false if it has none.
func (t *Table) Override(resource string) (Override, bool) {
	_, o := find(t.overrides, resource)
	return o, o.Pattern != "" && !strings.HasPrefix(resource, ownPrefix)
}

// find returns the value of the longest pattern that fits a resource, and the pattern.
func find[V any](all map[string]V, resource string) (pattern string, value V) {
	if value, ok := all[resource]; ok {
		return resource, value
	}
	for prefix := resource; ; {
		prefix = prefix[:strings.LastIndexByte(prefix, ':')+1]
		if value, ok := all[prefix+"*"]; ok {
			return prefix + "*", value
		}
		if prefix == "" {
			return "", value
		}
		prefix = strings.TrimSuffix(prefix, ":")
	}
}

// Texts returns the rules and the overrides as taskredis.Rules has them.
func (t *Table) Texts() (rules, overrides string) {
	var own, set strings.Builder
	for pattern, rule := range t.rules {
		fmt.Fprintf(&own, "\n%s\t%s", pattern, rule)
	}
	for pattern, o := range t.overrides {
		fmt.Fprintf(&set, "\n%s\t%s", pattern, &store.Rule{Limit: o.Limit, Rates: o.Rates})
	}
	return own.String(), set.String()
}
