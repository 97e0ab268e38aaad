package config_test

import (
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/queue"
)

// Policies mean the same in the file, in the environment and in flags, and reach the server.
func TestPolicies(t *testing.T) {
	t.Parallel()
	want := map[string]queue.Policy{
		"search:reindex": {OnBusy: queue.OnBusyReplace},
		"mail:digest":    {OnBusy: queue.OnBusyCoalesce, MaxWait: time.Hour},
		"order:audit":    {MaxWaiting: 100, UseRetries: true},
		"cart:count":     {OnBusy: queue.OnBusyReject, UseRetries: true},
		"order:ship":     {OnFailure: queue.OnFailureStop},
	}
	const first = "{search:reindex: {on_busy: replace}, mail:digest: {on_busy: coalesce, max_wait: 1h}}"
	const rest = "{order:audit: {max_waiting: 100, use_retries: true}, cart:count: {on_busy: reject, use_retries: true}, order:ship: {on_failure: stop}}"
	for name, have := range everyWay(t, "policies", `
policies:
  search:reindex: {on_busy: replace}
  "mail:digest":
    on_busy: coalesce
    max_wait: 1h
  "order:audit": {max_waiting: 100, use_retries: true}
  "cart:count": {on_busy: reject, use_retries: true}
  "order:ship": {on_failure: stop}
`, "{other: {on_busy: reject}}", first, rest) {
		expect.Same(t, name, have.Server(nil, nil).Policies, want)
	}
	have, err := load(write(t, "policies: {a: &p {on_busy: reject}, b: *p}\n"), nil)
	if p := have.Queue.Policies; err != nil || p["b"].OnBusy != queue.OnBusyReject {
		t.Errorf("want a policy for two kinds, have %v and %v", p, err)
	}
}

func TestPolicyErrors(t *testing.T) {
	t.Parallel()
	const wants = "policies: want a kind of task with on_busy, max_wait, max_waiting, use_retries or on_failure"
	wantRefused(t, map[string]string{
		"policies:\n":                                                              "1: " + wants + ", have nothing",
		"policies: [a]\n":                                                          "1: " + wants + ", have a list",
		"policies: a\n":                                                            "1: " + wants + ", in a mapping such as {NAME: {...}}, have a",
		"policies: {[a]: {on_busy: park}}\n":                                       "1: policies: want a kind of task, have a list",
		"policies:\n  a: reject\n":                                                 `2: policies: "a": want on_busy, max_wait, max_waiting, use_retries or on_failure below it, have "reject"`,
		"policies:\n  a: {}\n":                                                     `2: policies: "a": want on_busy, max_wait, max_waiting, use_retries or on_failure below it, have a mapping without any`,
		"policies:\n  ' ': {on_busy: park}\n":                                      `2: policies: want the kind of a task, have " "`,
		"policies:\n  'a:*': {on_failure: stop}\n":                                 `2: policies: want the whole kind of a task, not a pattern, have "a:*"`,
		"policies:\n  a:\n    on_busy: drop\n":                                     `2: policies: "a": on_busy: want park, reject, coalesce or replace, have drop`,
		"policies:\n  a:\n    on_busy:\n":                                          `3: policies: "a": on_busy: want park, reject, coalesce or replace, have nothing`,
		"policies:\n  a:\n    on_busy: [park]\n":                                   `2: policies: "a": on_busy: want park, reject, coalesce or replace, have a list`,
		"policies:\n  a:\n    busy: park\n":                                        `3: policies: "a": "busy": want on_busy, max_wait, max_waiting, use_retries or on_failure`,
		"policies:\n  a:\n    max_wait: 5\n":                                       `3: policies: "a": max_wait: want a duration such as 1m, have 5`,
		"policies:\n  a:\n    max_wait: 20ms\n":                                    `2: policies: "a": max_wait: want 0, or 1s or more, have 20ms`,
		"policies:\n  a:\n    max_waiting: many\n":                                 `3: policies: "a": max_waiting: want a number, have many`,
		"policies:\n  a:\n    max_waiting: -1\n":                                   `2: policies: "a": max_waiting: want 0 or more, have -1`,
		"policies:\n  a:\n    max_waiting: 1\n    max_waiting: 2\n":                `4: policies: "a": max_waiting: is there twice`,
		"policies:\n  a:\n    on_busy: reject\n    use_retries: yes\n":             `4: policies: "a": use_retries: want true or false, have yes`,
		"policies:\n  a:b: {on_busy: reject, max_wait: 1m}\n":                      `2: policies: "a:b": max_wait: want none with reject, as such a task never waits, have 1m0s`,
		"policies:\n  a: {on_failure: halt}\n":                                     `2: policies: "a": on_failure: want overtake, hold or stop, have halt`,
		"policies:\n  a:\n    on_failure:\n":                                       `3: policies: "a": on_failure: want overtake, hold or stop, have nothing`,
		"policies:\n  a: {use_retries: true}\n":                                    `2: policies: "a": use_retries: want reject, or a limit of waiting tasks, with it, have true`,
		"policies:\n  a: {on_busy: park}\n  a: {on_busy: park}\n":                  `3: policies: a is there twice`,
		"policies:\n  a: {on_busy: a, max_wait: b}\n  b: {max_wait: c, on: [1]}\n": "2: policies: \"a\": max_wait: want a duration such as 1m, have b\n%s:3: policies: \"b\": max_wait: want a duration such as 1m, have c",
	})
}
