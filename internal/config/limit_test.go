package config_test

import (
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// Limits mean the same in the file, in the environment and in flags, and reach the server.
func TestLimits(t *testing.T) {
	t.Parallel()
	want := map[string]queue.Limit{
		"account:*":     {Holders: 5},
		"supplier:acme": {Holders: 20, Rates: []lock.Rate{{Starts: 100, Period: time.Second}, {Starts: 1000, Period: time.Hour}}},
		"mail: a=b":     {Rates: []lock.Rate{{Starts: 1, Period: 1500 * time.Millisecond}}},
	}
	const first, rest = "{account:*: {holders: 5}}", `supplier:acme: {holders: 20, rates: [100/1s, 1000/1h]}
"mail: a=b": {rates: [1/1.5s]}`
	for name, have := range everyWay(t, "limits", `
limits:
  account:*: &five {holders: 5}
  "supplier:acme":
    holders: 20
    rates:
      - 100/1s
      - 1000/1h
  "mail: a=b": {rates: 1/1.5s}
`, "{other: {holders: 3}}", first, rest) {
		expect.Same(t, name, have.Server(nil, nil).Limits, want)
	}
	have, err := load(write(t, "limits: {account:1: &l {holders: 5}, account:2: *l}\n"), nil)
	if limits := have.Queue.Limits; err != nil || limits["account:2"].Holders != 5 {
		t.Errorf("want a limit for two accounts, have %v and %v", limits, err)
	}
	have, err = load(write(t, "limits: {}\n"), map[string]string{"SIDING_LIMITS": ""})
	expect.That(t, err == nil && len(have.Queue.Limits) == 0, "want no limits, have %v and %v", have.Queue.Limits, err)
}

func TestLimitErrors(t *testing.T) {
	t.Parallel()
	const wants = "limits: want a pattern with 1 to 1000 holders, with at most 8 rates such as 100/1s, or with both"
	wantRefused(t, map[string]string{
		"limits:\n":                                             "1: " + wants + ", have nothing",
		"limits: [a]\n":                                         "1: " + wants + ", have a list",
		"limits: a\n":                                           "1: " + wants + ", in a mapping such as {NAME: {...}}, have a",
		"limits:\n  a: 5\n":                                     `2: limits: "a": want holders, rates or both below it, have "5"`,
		"limits:\n  a: {}\n":                                    `2: limits: "a": want holders, rates or both below it, have a mapping without any`,
		"limits:\n  acc*: {holders: 5}\n":                       `2: limits: want a resource, a pattern that ends in ":*" such as "account:*", or "*", have "acc*"`,
		"limits:\n  a:\n    holders: 0\n":                       `3: limits: "a": holders: want 1 to 1000, have 0`,
		"limits:\n  a:\n    holders: 1001\n":                    `3: limits: "a": holders: want 1 to 1000, have 1001`,
		"limits:\n  a:\n    holders:\n":                         `3: limits: "a": holders: want 1 to 1000, have nothing`,
		"limits:\n  a:\n    holders: [1]\n":                     `3: limits: "a": holders: want 1 to 1000, have "a list"`,
		"limits:\n  a:\n    holders: 1\n    holders: 2\n":       `4: limits: "a": holders: is there twice`,
		"limits:\n  a:\n    holders: 1\n    holder: 2\n":        `4: limits: "a": "holder": want holders or rates`,
		"limits:\n  a:\n    rates: []\n":                        `3: limits: "a": rates: want starts/period such as 100/1s, have "a list without any"`,
		"limits:\n  a:\n    rates:\n      - 1/1s\n      - 10\n": `5: limits: "a": rates: want starts/period such as 100/1s, have "10"`,
		"limits:\n  a: {rates: [0/1s]}\n":                       `2: limits: "a": rates: starts: want 1 to 10000, have 0`,
		"limits:\n  a: {rates: [1/1us]}\n":                      `2: limits: "a": rates: period: want 1ms to 744h0m0s, have 1µs`,
		"limits:\n  a: {rates: [[1]]}\n":                        `2: limits: "a": rates: want starts/period such as 100/1s, have "a list"`,
		"limits:\n  a: {rates: [1/1s, 1/2s, 1/3s, 1/4s, 1/5s, 1/6s, 1/7s, 1/8s, 1/9s]}\n": `2: limits: a: rates: want at most 8, have 9`,
		"limits:\n  a: {holders: 1}\n  a: {holders: 2}\n":                                 `3: limits: a is there twice`,
	})
}
