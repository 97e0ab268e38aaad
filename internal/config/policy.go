package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/sidingq/siding/queue"
)

// policies gives each kind of task a policy. In the file a policy is a mapping, such as
// {on_busy: coalesce, max_wait: 1h}. Elsewhere it is a text, such as coalesce max_wait=1h.
func policies(into *map[string]queue.Policy, key, help string) Setting {
	add := func(kind string, p queue.Policy) error {
		one := queue.ServerConfig{Policies: map[string]queue.Policy{kind: p}} // which knows the rules
		if err := one.Validate(); err != nil {
			return policyError(kind, err)
		}
		if _, ok := (*into)[kind]; ok {
			return fmt.Errorf("%s is there twice", kind)
		}
		if *into == nil {
			*into = make(map[string]queue.Policy)
		}
		(*into)[kind] = p
		return nil
	}
	return Setting{
		Key: key, Flag: flagOf(key), Env: envOf(key), Help: help, Kind: Policies,
		Want:  "a kind of task with on_busy, max_wait, max_waiting, use_retries or on_failure",
		below: policyFields,
		clear: func() { *into = nil },
		entry: func(f *file, key, kind string, fields *yaml.Node) error {
			var p queue.Policy
			if !f.fields(fields, key, func(name string, value *yaml.Node, fail func(int, error)) {
				if err := setPolicyNode(&p, name, value); err != nil {
					fail(0, err)
				}
			}) {
				return nil
			}
			return add(kind, p)
		},
		set: func(text string) error {
			kind, rest, ok := strings.Cut(text, "=")
			fields := strings.Fields(rest)
			if !ok || len(fields) == 0 {
				return errWant
			}
			if !strings.Contains(fields[0], "=") {
				fields[0] = "on_busy=" + fields[0]
			}
			var p queue.Policy
			seen := make(map[string]bool)
			for _, field := range fields {
				name, value, _ := strings.Cut(field, "=")
				err := setPolicy(&p, name, value)
				if seen[name] {
					err = fmt.Errorf("%s: is there twice", name)
				}
				if err != nil {
					return fmt.Errorf("%.80q: %w", kind, err)
				}
				seen[name] = true
			}
			return add(kind, p)
		},
	}
}

const policyFields = "on_busy, max_wait, max_waiting, use_retries or on_failure"

// policyError returns an error of the library in the words of the settings.
func policyError(kind string, err error) error {
	what := strings.TrimPrefix(err.Error(), "queue: policies: ")
	field, want, ok := strings.Cut(strings.TrimPrefix(what, kind+": "), ": ")
	if what == field || !ok || !strings.HasPrefix(what, kind+": ") {
		return errors.New(what)
	}
	return fmt.Errorf("%.80q: %s: %s", kind, strings.ReplaceAll(field, " ", "_"), want)
}

// setPolicyNode sets a field of a policy in a file.
func setPolicyNode(p *queue.Policy, name string, value *yaml.Node) error {
	if value.Kind != yaml.ScalarNode {
		return fmt.Errorf("%.80s: want one value, have %s", name, kind(value))
	}
	return setPolicy(p, name, value.Value)
}

// setPolicy sets a field of a policy.
func setPolicy(p *queue.Policy, name, value string) error {
	var err error
	var want string
	switch name {
	case "on_busy":
		want, p.OnBusy = "park, reject, coalesce or replace", queue.OnBusy(value)
		if value == "" { // else the library checks it
			err = errWant
		}
	case "max_wait":
		want = "a duration such as 1m"
		p.MaxWait, err = time.ParseDuration(value)
	case "max_waiting":
		want = "a number"
		p.MaxWaiting, err = strconv.Atoi(value)
	case "use_retries":
		want, p.UseRetries = "true or false", value == "true"
		if value != "true" && value != "false" {
			err = errWant
		}
	case "on_failure":
		want, p.OnFailure = "overtake, hold or stop", queue.OnFailure(value)
		if value == "" { // else the library checks it
			err = errWant
		}
	default:
		return fmt.Errorf("%.80q: want %s", name, policyFields)
	}
	if err != nil {
		return fmt.Errorf("%s: want %s, have %s", name, want, Setting{}.show(value))
	}
	return nil
}
