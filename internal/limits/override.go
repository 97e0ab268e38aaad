package limits

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/store"
)

var (
	//go:embed read.lua
	readSource string
	//go:embed set.lua
	setSource string

	readScript = redis.NewScript(readSource)
	setScript  = redis.NewScript(setSource)
)

// An Override takes the place of a program's rule, as an operator wants it.
type Override struct {
	Pattern string       `json:"-"`
	Limit   int          `json:"limit"`           // 0 pauses the resources
	Rates   []store.Rate `json:"rates,omitempty"` // nil leaves those of the program's rule
	By      string       `json:"by"`
	Reason  string       `json:"reason"`
	At      time.Time    `json:"at"`
}

// replacing returns the rule that an override makes of the program's, which may be nil.
func (o Override) replacing(rule *store.Rule) *store.Rule {
	made := &store.Rule{Limit: o.Limit, Rates: o.Rates, By: o.By, Reason: o.Reason}
	if made.Rates == nil && rule != nil {
		made.Rates = rule.Rates
	}
	return made
}

func (o Override) equal(other Override) bool {
	return o.Limit == other.Limit && slices.Equal(o.Rates, other.Rates) && o.By == other.By && o.Reason == other.Reason && o.At.Equal(other.At)
}

// MaxOverrides is how many overrides there may be. Servers read all of them twice a second.
const MaxOverrides = 1000

// Key is the hash that has the overrides for locks with a prefix: pattern -> Override as JSON.
func Key(prefix string) string { return "siding:limits:" + prefix }

// Load reads all overrides. One that cannot be read is left out, and is part of the error.
func Load(ctx context.Context, rdb redis.Scripter, prefix string) (map[string]Override, error) {
	found, _, err := load(ctx, rdb, prefix)
	return found, err
}

// Reload returns the table with the overrides that Redis has now. One that cannot be read is part of the
// error, and the earlier one of its pattern holds. Reload returns t itself if nothing has changed, or if
// Redis has not answered.
func (t *Table) Reload(ctx context.Context, rdb redis.Scripter, prefix string) (*Table, error) {
	found, bad, err := load(ctx, rdb, prefix)
	if found == nil {
		return t, err
	}
	for _, pattern := range bad {
		if o, ok := t.overrides[pattern]; ok {
			found[pattern] = o
		}
	}
	if t.most > 0 {
		for pattern, o := range found {
			o.Limit = min(o.Limit, t.most)
			found[pattern] = o
		}
	}
	return t.With(found), err
}

// load reads all overrides. bad are the patterns of those that cannot be read.
func load(ctx context.Context, rdb redis.Scripter, prefix string) (found map[string]Override, bad []string, _ error) {
	all, err := readScript.Run(ctx, rdb, []string{Key(prefix)}).StringSlice()
	if err != nil {
		return nil, nil, fmt.Errorf("read the limits: %w", err)
	}
	found = make(map[string]Override, len(all))
	for pair := range slices.Chunk(all, 2) {
		pattern, text := pair[0], pair[1]
		o := Override{Pattern: pattern}
		if json.Unmarshal([]byte(text), &o) != nil || CheckPattern(pattern) != nil || o.replacing(nil).Check() != nil {
			bad = append(bad, pattern)
			continue
		}
		found[pattern] = o
	}
	if len(bad) > 0 {
		slices.Sort(bad)
		return found, bad, fmt.Errorf("read the limits: %s: want what SetLimit writes", strings.Join(bad, ", "))
	}
	return found, nil, nil
}

// ErrTooMany refuses an override because there are [MaxOverrides] others.
var ErrTooMany = fmt.Errorf("there are %d overrides, which is the most: unset some, or set one for a pattern", MaxOverrides)

// Set writes an override, in place of an earlier one of its pattern.
func Set(ctx context.Context, rdb redis.Scripter, prefix string, o Override) error {
	text, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("encode a limit: %w", err)
	}
	set, err := setScript.Run(ctx, rdb, []string{Key(prefix)}, o.Pattern, text, MaxOverrides).Int()
	switch {
	case err != nil:
		return fmt.Errorf("write a limit: %w", err)
	case set == 0:
		return ErrTooMany
	}
	return nil
}

// Unset deletes the override of a pattern, and reports whether there was one.
func Unset(ctx context.Context, rdb redis.Cmdable, prefix, pattern string) (bool, error) {
	n, err := rdb.HDel(ctx, Key(prefix), pattern).Result()
	if err != nil {
		return false, fmt.Errorf("delete a limit: %w", err)
	}
	return n > 0, nil
}
