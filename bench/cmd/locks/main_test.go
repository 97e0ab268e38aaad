package main

import (
	"encoding/json"
	"errors"
	"flag"
	"io"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/proc"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/internal/verify"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// small are the arguments of a run that is soon over.
var small = []string{"-rounds", "1", "-ops", "3", "-handoffs", "1", "-waiters", "2"}

// TestRun runs every contender in every case, on a Redis of its own.
func TestRun(t *testing.T) {
	t.Parallel()
	verify.Long(t)
	proc.Find(t, "redis-server", "redis-server")
	var out strings.Builder
	expect.OK(t, run(t.Context(), small, &out, io.Discard))
	for _, want := range []string{
		"an empty script", "uncontended, 1 at once", "uncontended, 16 at once", "uncontended, 256 at once",
		"waiters 2, processes 1", "waiters 2, processes 3",
	} {
		expect.That(t, strings.Contains(out.String(), "\n"+want), "want a block for %q, have\n%s", want, out.String())
	}
	for _, c := range contenders() {
		if have := strings.Count(out.String(), "\n  "+c.Name+" "); have != 5 {
			t.Errorf("want %s in every block but that of nobody, have\n%s", c.Name, out.String())
		}
	}
}

// TestRunJSON: on a Redis that runs already, in lines that a program can read.
func TestRunJSON(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	var out strings.Builder
	args := append([]string{"-json", "-contenders", "redislock", "-redis", server.Addr}, small...)
	expect.OK(t, run(t.Context(), args, &out, io.Discard))
	seen := make(map[string]float64)
	for line := range strings.Lines(out.String()) {
		var f struct {
			Contender, Case, Figure string
			Median, Min, Max        float64
			Values                  []float64
		}
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		expect.That(t, len(f.Values) != 0 && f.Min <= f.Median && f.Median <= f.Max, "want a median between the extremes, have %s", line)
		seen[strings.TrimSpace(f.Contender+" "+f.Case+" "+f.Figure)] = f.Median
	}
	if have := seen["redislock uncontended, 1 at once commands sent"]; have != 2 {
		t.Errorf("want 2 commands for an uncontended acquisition, have %v of %v", have, seen)
	}
	if have := seen["redislock uncontended, 1 at once commands run"]; have != 5 {
		t.Errorf("want 5 commands run for it, those inside scripts included, have %v", have)
	}
	if have := seen["redislock waiters 2, processes 3 hand-off p50"]; have <= 0 || have > 10_000 {
		t.Errorf("want a hand-off in some time, have %v of %v", have, seen)
	}
	if have := seen["an empty script round trip p50"]; have <= 0 {
		t.Errorf("want the yardstick, have %v", seen)
	}
}

func TestArguments(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"-rounds 0":             "at least 1",
		"-waiters 0":            "above 0",
		"-waiters 1,x":          `"x"`,
		"-contenders redsync,x": `"x"`,
		"more":                  `"more"`,
	} {
		if err := run(t.Context(), strings.Fields(args), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: want an error with %s, have %v", args, want, err)
		}
	}
	if err := run(t.Context(), []string{"-h"}, io.Discard, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("want help, have %v", err)
	}
}
