package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sidingq/siding/queue"
)

// policies gives each kind of task a policy, such as {on_busy: coalesce, max_wait: 1h}.
func policies(into *map[string]queue.Policy, key, help string) Setting {
	entry := func(kind string, fields []field) (line int, _ error) {
		var p queue.Policy
		for _, f := range fields {
			if err := setPolicy(&p, f.name, f.value); err != nil {
				return f.line, fmt.Errorf("%.80q: %w", kind, err)
			}
		}
		one := queue.ServerConfig{Policies: map[string]queue.Policy{kind: p}} // which knows the rules
		if err := one.Validate(); err != nil {
			return 0, policyError(kind, err)
		}
		return 0, add(into, kind, p)
	}
	return Setting{
		Key: key, Flag: flagOf(key), Env: envOf(key), Help: help, Kind: Policies,
		Want:  "a kind of task with on_busy, max_wait, max_waiting, use_retries or on_failure",
		below: policyFields,
		clear: func() { *into = nil },
		entry: entry,
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
