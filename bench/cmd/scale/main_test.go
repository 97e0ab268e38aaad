package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/sidingq/siding/internal/testenv/expect"
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
	args := strings.Fields("-json -tasks 120 -resources 1,12,120 -handoffs 5")
	expect.OK(t, run(t.Context(), args, &out, io.Discard))
	seen := make(map[string]int) // figures of each case
	for line := range strings.Lines(out.String()) {
		var f struct {
			Contender, Figure, Unit string
			Median                  float64
		}
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		seen[f.Contender]++
		if measured := !slices.Contains([]string{"CPU of Redis", "memory beyond asynq's"}, f.Figure); measured && f.Median <= 0 {
			t.Errorf("want it measured, have %s", line)
		}
		expect.That(t, f.Figure != "timed" || f.Median >= 5, "want 5 hand-offs, have %s", line)
	}
	want := make(map[string]int)
	for _, resources := range []int{1, 12, 120} {
		want[fmt.Sprintf("120 tasks on %d resources", resources)] = 13
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("figures (-want +have):\n%s", diff)
	}
}

func TestArguments(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"-tasks 0":                "at least 1",
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
