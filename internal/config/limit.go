package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	rules "github.com/sidingq/siding/internal/limits"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// limits gives each pattern of resources a limit, such as {holders: 20, rates: [100/1s]}.
func limits(into *map[string]queue.Limit, key, help string) Setting {
	entry := func(pattern string, fields []field) (line int, _ error) {
		var l queue.Limit
		for _, f := range fields {
			if err := setLimit(&l, f); err != nil {
				return f.line, fmt.Errorf("%.80q: %w", pattern, err)
			}
		}
		one := queue.ServerConfig{Limits: map[string]queue.Limit{pattern: l}} // which knows the rules
		if err := one.Validate(); err != nil {
			return 0, errors.New(strings.TrimPrefix(err.Error(), "queue: limits: "))
		}
		return 0, add(into, pattern, l)
	}
	return Setting{
		Key: key, Flag: flagOf(key), Env: envOf(key), Help: help, Kind: Limits,
		Want:  fmt.Sprintf("a pattern with 1 to %d holders, with at most %d rates such as 100/1s, or with both", store.MaxLimit, store.MaxRates),
		below: "holders, rates or both",
		list:  "rates",
		clear: func() { *into = nil },
		entry: entry,
	}
}

// setLimit sets a field of a limit, or adds one of its rates.
func setLimit(l *queue.Limit, f field) (err error) {
	switch f.name {
	case "holders":
		if l.Holders, err = strconv.Atoi(f.value); err != nil || l.Holders < 1 || l.Holders > store.MaxLimit {
			return fmt.Errorf("holders: want 1 to %d, have %s", store.MaxLimit, Setting{}.show(f.value))
		}
	case "rates":
		rate, err := rules.ParseRate(f.value)
		if err != nil {
			return fmt.Errorf("rates: %w", err)
		}
		l.Rates = append(l.Rates, lock.Rate(rate))
	default:
		return fmt.Errorf("%.80q: want holders or rates", f.name)
	}
	return nil
}
