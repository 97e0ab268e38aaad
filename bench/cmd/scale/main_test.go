package main

import (
	"encoding/json"
	"errors"
	"flag"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/sidingq/siding/internal/testenv/proc"
	"github.com/sidingq/siding/internal/verify"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRun measures everything, of a few tasks.
func TestRun(t *testing.T) {
	t.Parallel()
	verify.Long(t)
	proc.Find(t, "redis-server", "redis-server")
	var out strings.Builder
	args := strings.Fields("-json -tasks 120 -resources 1,12,120 -watch 200ms -handoffs 5")
	if err := run(t.Context(), args, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	var costs []cost
	var cases []result
	for line := range strings.Lines(out.String()) {
		into := any(&result{})
		switch {
		case strings.Contains(line, "cost"):
			into = &cost{}
		}
		if err := json.Unmarshal([]byte(line), into); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		switch v := into.(type) {
		case *cost:
			costs = append(costs, *v)
		case *result:
			cases = append(cases, *v)
		}
	}
	for i := range 3 {
		// One script ends many tasks and takes others.
		if i >= len(costs) || costs[i].Rate <= 0 || costs[i].Scripts <= 0 {
			t.Fatalf("want three kinds of task with some scripts, have %+v", costs)
		}
	}
	var resources []int
	for _, r := range cases {
		resources = append(resources, r.Resources)
		if min(r.EnqueueRate, r.ParkRate, r.Start, r.Stop, r.PageQueues, r.PageQueue, r.PageFirst, r.PageLast, r.FewP50, r.P50, r.List, r.Show, r.Why, r.Top, r.LocksPage, r.AloneP50, r.LookedP50) <= 0 {
			t.Errorf("want everything measured, have %+v", r)
		}
		if r.HandOffs < 5 || r.P50 > r.P99 || r.FewP50 > r.FewP99 {
			t.Errorf("want 5 hand-offs in order, have %+v", r)
		}
	}
	if diff := cmp.Diff([]int{1, 12, 120}, resources); diff != "" {
		t.Errorf("resources (-want +have):\n%s", diff)
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := writeTable(&out, []result{{Tasks: 10, P50: 3, FewP50: 2}, {Tasks: 20, P50: 4, FewP50: 4}}); err != nil {
		t.Fatal(err)
	}
	lines := make(map[string]bool)
	for line := range strings.Lines(out.String()) {
		lines[strings.Join(strings.Fields(line), " ")] = true
	}
	for _, want := range []string{"waiting tasks 10 20", "hand-off p50, ms (ratio) 3.00 (1.50) 4.00 (1.00)"} {
		if !lines[want] {
			t.Errorf("want %q in\n%s", want, out.String())
		}
	}
}

func TestArguments(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"-tasks 0":                "at least 1",
		"-watch -1s":              "0 for -watch",
		"-resources 0":            `"0"`,
		"-resources 1,x":          `"x"`,
		"-tasks 5 -resources 1,6": "5 tasks for 6",
		"more":                    `"more"`,
	} {
		if err := run(t.Context(), strings.Fields(args), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: want an error with %s, have %v", args, want, err)
		}
	}
	if err := run(t.Context(), []string{"-h"}, io.Discard, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("want help, have %v", err)
	}
}
