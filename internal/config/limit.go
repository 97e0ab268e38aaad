package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	rules "github.com/sidingq/siding/internal/limits"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// limits gives each pattern of resources a limit. In the file a limit is a mapping, such as
// {holders: 20, rates: [100/1s]}. Elsewhere it is a text, such as 20 100/1s.
func limits(into *map[string]queue.Limit, key, help string) Setting {
	add := func(pattern string, l queue.Limit) error {
		one := queue.ServerConfig{Limits: map[string]queue.Limit{pattern: l}} // which knows the rules
		if err := one.Validate(); err != nil {
			return errors.New(strings.TrimPrefix(err.Error(), "queue: limits: "))
		}
		if _, ok := (*into)[pattern]; ok {
			return fmt.Errorf("%s is there twice", pattern)
		}
		if *into == nil {
			*into = make(map[string]queue.Limit)
		}
		(*into)[pattern] = l
		return nil
	}
	return Setting{
		Key: key, Flag: flagOf(key), Env: envOf(key), Help: help, Kind: Limits,
		Want:  "a pattern with 1 to 1000 holders, with at most 8 rates such as 100/1s, or with both",
		below: "holders, rates or both",
		clear: func() { *into = nil },
		entry: func(f *file, key, pattern string, fields *yaml.Node) error {
			l, ok := f.limit(fields, key)
			if !ok {
				return nil
			}
			return add(pattern, l)
		},
		set: func(text string) error {
			at := strings.LastIndexByte(text, '=')
			fields := strings.Fields(text[at+1:])
			if at < 0 || len(fields) == 0 {
				return errWant
			}
			var l queue.Limit
			var err error
			if !strings.Contains(fields[0], "/") {
				l.Holders, err = holders(fields[0])
				fields = fields[1:]
			}
			for _, field := range fields {
				if err == nil {
					err = addRate(&l, field)
				}
			}
			if err != nil {
				return fmt.Errorf("%.80q: %w", text[:at], err)
			}
			return add(text[:at], l)
		},
	}
}

// holders reads how many may hold a resource.
func holders(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 1000 {
		return 0, fmt.Errorf("holders: want 1 to 1000, have %s", Setting{}.show(text))
	}
	return n, nil
}

// addRate reads a rate.
func addRate(l *queue.Limit, text string) error {
	rate, err := rules.ParseRate(text)
	if err != nil {
		return fmt.Errorf("rates: %w", err)
	}
	l.Rates = append(l.Rates, lock.Rate(rate))
	return nil
}

// limit reads one limit. It returns false after an error.
func (f *file) limit(fields *yaml.Node, key string) (l queue.Limit, ok bool) {
	ok = f.fields(fields, key, func(name string, value *yaml.Node, fail func(int, error)) {
		var err error
		switch {
		case name != "holders" && name != "rates":
			err = fmt.Errorf("%.80q: want holders or rates", name)
		case name == "holders" && value.Kind == yaml.ScalarNode:
			l.Holders, err = holders(value.Value)
		case name == "holders":
			err = fmt.Errorf("holders: want 1 to 1000, have %s", kind(value))
		case value.Kind != yaml.SequenceNode || len(value.Content) == 0:
			err = fmt.Errorf("rates: want a list such as [100/1s], have %s", amount(value))
		default:
			for _, item := range value.Content {
				rate := resolve(item)
				if rate.Kind != yaml.ScalarNode {
					fail(item.Line, fmt.Errorf("rates: want starts/period such as 100/1s, have %s", kind(rate)))
				} else if err := addRate(&l, rate.Value); err != nil {
					fail(item.Line, err)
				}
			}
		}
		if err != nil {
			fail(0, err)
		}
	})
	return l, ok
}

// amount names what a node is, and whether it is empty.
func amount(node *yaml.Node) string {
	if node.Kind != yaml.ScalarNode && len(node.Content) == 0 {
		return kind(node) + " without any"
	}
	return kind(node)
}
