package store

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// A Rule says how many may hold a lock at once, and how often one may start. Each holder has a permit
// of the lock. A lock without a Rule has one holder at most.
type Rule struct {
	Limit int // 0 for a lock that is paused
	Rates []Rate
	// By and Reason say who has paused the lock, and why.
	By, Reason string
}

// A Rate is lock.Rate: at most Starts in any Period.
type Rate struct {
	Starts int
	Period time.Duration
}

// The most that a [Rule] may have.
const (
	MaxLimit  = 1000
	MaxStarts = 10_000
	MaxPeriod = 31 * 24 * time.Hour
	MaxRates  = 8
)

// PausedBy says who has paused the lock, and why.
func (r *Rule) PausedBy() string {
	if r.By == "" {
		return "it is paused"
	}
	return fmt.Sprintf("%s paused it: %s", r.By, r.Reason)
}

// Check returns an error that names the first field that cannot work.
func (r *Rule) Check() error {
	if r.Limit < 0 || r.Limit > MaxLimit {
		return fmt.Errorf("holders: want 0 to %d, have %d", MaxLimit, r.Limit)
	}
	if len(r.Rates) > MaxRates {
		return fmt.Errorf("rates: want at most %d, have %d", MaxRates, len(r.Rates))
	}
	for _, rate := range r.Rates {
		if err := rate.Check(); err != nil {
			return fmt.Errorf("rates: %w", err)
		}
	}
	return nil
}

// Check returns an error that names the first field that cannot work.
func (r Rate) Check() error {
	switch {
	case r.Starts < 1 || r.Starts > MaxStarts:
		return fmt.Errorf("starts: want 1 to %d, have %d", MaxStarts, r.Starts)
	case r.Period < time.Millisecond || r.Period > MaxPeriod:
		return fmt.Errorf("period: want 1ms to %v, have %v", MaxPeriod, r.Period)
	}
	return nil
}

// Plain returns nil for a Rule that says what holds without one: one holder at a time.
func (r *Rule) Plain() *Rule {
	if r == nil || r.Limit == 1 && len(r.Rates) == 0 {
		return nil
	}
	return r
}

// String returns the rule as scripts and tokens have it: the limit, and then the starts and the
// microseconds of each rate, such as "3 100/1000000". It returns "" for nil.
func (r *Rule) String() string {
	if r == nil {
		return ""
	}
	var text strings.Builder
	text.WriteString(strconv.Itoa(r.Limit))
	for _, rate := range r.Rates {
		fmt.Fprintf(&text, " %d/%d", rate.Starts, rate.Period.Microseconds())
	}
	return text.String()
}

// permitPattern has the three kinds of names that Beside makes of permits.
var permitPattern = regexp.MustCompile(`^(?:\{(lock:[^}]*)\}:permit:\d+|\{([^}]*)\}siding:permit:\d+|(.*\}.*):siding:permit:\d+)$`)

// LockOf returns the key of the lock that a permit is of, and the key of a lock itself.
func LockOf(key string) string {
	if strings.Contains(key, "}") {
		if m := permitPattern.FindStringSubmatch(key); m != nil {
			return m[1] + m[2] + m[3]
		}
	}
	return key
}

// LocksOf does the same with each key of a text, see [SplitLocks].
func LocksOf(text string) string {
	keys := SplitLocks(text)
	for i, key := range keys {
		keys[i] = LockOf(key)
	}
	return JoinLocks(keys)
}

// Beside is the key of what belongs to a lock, in its slot of a Cluster, as beside of common.lua makes it. The name depends on
// the key of the lock alone, so that all who use that key agree. Where keys do not begin with "lock:" there may be other
// data, with names like these, and ours have "siding:" in them.
func Beside(lock, what string) string {
	switch {
	case strings.Contains(lock, "}"):
		return lock + ":siding:" + what
	case strings.HasPrefix(lock, DefaultPrefix):
		return "{" + lock + "}:" + what
	default:
		return "{" + lock + "}siding:" + what
	}
}

// PermitKey returns the key of a permit of a lock.
func PermitKey(lock, number string) string { return Beside(lock, "permit:"+number) }

// A Limiter is a Store that keeps to [Request.Rule]. Other Stores know locks without rules only.
type Limiter interface {
	// RuleOf returns the rule of a resource that all who use the Store keep to; nil for none.
	RuleOf(resource string) *Rule
}
