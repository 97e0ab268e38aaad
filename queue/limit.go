package queue

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/limits"
	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/lock"
)

// A Limit says how many tasks may hold a resource at once, and how often one may start. The zero
// value is one at a time, as without a Limit.
//
// All that holds for the lock of a resource holds for each of its holders: the order of arrival,
// the hand-off, the loss of the lease, recovery. Each holder has a fencing token, and the
// tokens grow. A store that refuses older tokens then refuses those of the other holders, too: fence
// what is written by one holder at a time.
type Limit struct {
	// Holders is how many tasks may hold the resource at once, 1 to 1000. 0 means 1.
	Holders int
	// Rates say how often a task may start, all of them at once, by Redis's clock. A task that has to
	// wait for its time is parked like one that waits for a holder. At most 8.
	Rates []lock.Rate
}

func (l Limit) rule() *store.Rule {
	rule := &store.Rule{Limit: cmp.Or(l.Holders, 1)}
	for _, r := range l.Rates {
		rule.Rates = append(rule.Rates, store.Rate(r))
	}
	return rule
}

// rulesOf returns the rules of a configuration. The error names the first that cannot work.
func rulesOf(all map[string]Limit) (map[string]*store.Rule, error) {
	rules := make(map[string]*store.Rule, len(all))
	for _, pattern := range slices.Sorted(maps.Keys(all)) {
		if err := limits.CheckPattern(pattern); err != nil {
			return nil, fmt.Errorf("queue: limits: %w", err)
		}
		rule := all[pattern].rule()
		if err := rule.Check(); err != nil {
			return nil, fmt.Errorf("queue: limits: %s: %w", pattern, err)
		}
		rules[pattern] = rule
	}
	return rules, nil
}

// limitsEvery is how often the overrides of operators are read.
const limitsEvery = 500 * time.Millisecond

// rescanFor is how long those who wait are looked for after a change. While a master does not answer, other changes are to be read.
const rescanFor = 3 * time.Second

// ruleOf returns the rule of the lock of a resource, nil for none.
func (s *Server) ruleOf(resource string) *store.Rule {
	var rule *store.Rule
	for _, name := range store.Names(resource) {
		if of := s.limits.Load().Rule(name); of != nil && (rule == nil || of.Limit < rule.Limit) {
			rule = of
		}
	}
	return rule
}

// rules returns the limits as the steps go by them.
func (s *Server) rules() taskredis.Rules {
	own, overrides := s.limits.Load().Texts()
	return taskredis.Rules{Limits: own, Overrides: overrides}
}

// loadLimits reads the overrides. Of those that cannot be read the earlier ones hold.
func (s *Server) loadLimits(ctx context.Context) error {
	known := s.limits.Load()
	table, err := known.Reload(ctx, s.rdb, s.locks.Config().Prefix)
	if table != known {
		s.limits.Store(table)
	}
	return err
}

func (s *Server) limitsRead(ctx context.Context, err error) {
	s.fault(ctx, "limits that operators have set cannot be read, and the last known ones hold", err)
}

// followLimits reads the overrides time and again until ctx ends.
func (s *Server) followLimits(ctx context.Context) {
	table := s.limits.Load()
	for sleep.For(ctx, limitsEvery) == nil {
		call, cancel := context.WithTimeout(ctx, time.Second)
		s.limitsRead(ctx, s.loadLimits(call))
		cancel()
		if now := s.limits.Load(); now != table {
			call, cancel := context.WithTimeout(ctx, rescanFor)
			err := s.engine.SetRules(call, s.rules())
			cancel()
			s.fault(ctx, "those who wait could not be looked at after a change of limits; this is tried again", err)
			if err == nil {
				table = now
			}
		}
	}
}

// A LimitOverride is a limit that an operator sets at run time. It holds for all servers within a
// second, until [UnsetLimit].
type LimitOverride struct {
	// Pattern is a resource, or text that ends in a colon and "*", such as "account:*".
	Pattern string `json:"pattern"`
	// Prefix is the Prefix of the servers' [lock.Config]. Defaults to "lock:".
	Prefix string `json:"-"`
	// Holders is how many tasks may hold each of these resources at once, 0 to 1000. 0 pauses them:
	// their tasks wait. Holders at work are not disturbed.
	Holders int `json:"holders"`
	// Rates replace those of the servers' own [Limit]. Without any, those stay.
	Rates []lock.Rate `json:"rates,omitempty"`
	// By and Reason say who sets the limit, and why. Both are required, of at most 200 and 1,000
	// bytes. Operators and users see them.
	By     string `json:"by"`
	Reason string `json:"reason"`
	// At is when the limit was set, by the clock of the program that did so. SetLimit sets it.
	At time.Time `json:"at"`
}

// SetLimit sets a limit in place of that of the servers' configuration, and of an earlier one of the same
// pattern. All servers keep to it within a second. A higher limit lets as many tasks start as there is
// room for. A lower one takes no lock away: no task starts until there are fewer holders. Of several overrides
// that fit a resource the one with the longest pattern counts. There may be 1,000 overrides.
//
// An override also replaces a limit of the servers with a longer pattern, and the single holder of resources
// without a limit. So 5 holders for "*" let five tasks have each resource at once, whatever its limit was.
//
// After an error of Redis the limit may have been set or not. To set it again is safe.
func SetLimit(ctx context.Context, rdb redis.UniversalClient, l LimitOverride) error {
	if err := cmp.Or(checkContext(ctx), checkClient(rdb)); err != nil {
		return err
	}
	o, err := l.override()
	if err != nil {
		return err
	}
	if err := limits.Set(ctx, rdb, cmp.Or(l.Prefix, store.DefaultPrefix), o); err != nil {
		return fmt.Errorf("queue: set limit: %w", err)
	}
	return nil
}

// UnsetLimit removes an override. The servers' own [Limit] holds again within a second. It reports
// whether there was one, and perhaps not if an answer of Redis was lost.
func UnsetLimit(ctx context.Context, rdb redis.UniversalClient, prefix, pattern string) (bool, error) {
	if err := cmp.Or(checkContext(ctx), checkClient(rdb)); err != nil {
		return false, err
	}
	was, err := limits.Unset(ctx, rdb, cmp.Or(prefix, store.DefaultPrefix), pattern)
	if err != nil {
		return false, fmt.Errorf("queue: unset limit: %w", err)
	}
	return was, nil
}

// Limits returns the overrides for locks with a prefix, by their patterns. An empty prefix means "lock:".
func Limits(ctx context.Context, rdb redis.UniversalClient, prefix string) ([]LimitOverride, error) {
	if err := cmp.Or(checkContext(ctx), checkClient(rdb)); err != nil {
		return nil, err
	}
	all, err := limits.Load(ctx, rdb, cmp.Or(prefix, store.DefaultPrefix))
	if err != nil {
		err = fmt.Errorf("queue: limits: %w", err)
	}
	var found []LimitOverride
	for _, pattern := range slices.Sorted(maps.Keys(all)) {
		o := all[pattern]
		l := LimitOverride{Pattern: o.Pattern, Prefix: prefix, Holders: o.Limit, By: o.By, Reason: o.Reason, At: o.At}
		for _, r := range o.Rates {
			l.Rates = append(l.Rates, lock.Rate(r))
		}
		found = append(found, l)
	}
	return found, err
}

// override checks l.
func (l LimitOverride) override() (limits.Override, error) {
	o := limits.Override{Pattern: l.Pattern, Limit: l.Holders, By: l.By, Reason: l.Reason, At: time.Now().UTC()}
	for _, r := range l.Rates {
		o.Rates = append(o.Rates, store.Rate(r))
	}
	if err := limits.CheckPattern(l.Pattern); err != nil {
		return o, fmt.Errorf("queue: set limit: pattern: %w", err)
	}
	rule := store.Rule{Limit: o.Limit, Rates: o.Rates}
	if err := rule.Check(); err != nil {
		return o, fmt.Errorf("queue: set limit: %s: %w", l.Pattern, err)
	}
	if err := checkTexts(l.By, l.Reason); err != nil {
		return o, fmt.Errorf("queue: set limit: %s: %w", l.Pattern, err)
	}
	return o, nil
}

// checkTexts checks who does something for an operator, and why.
func checkTexts(by, reason string) error {
	return cmp.Or(store.CheckText("by", by, 200), store.CheckText("reason", reason, 1000))
}
