package main

import (
	"encoding/json"
	"io"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/sidingq/siding/internal/testenv/proc"
	"github.com/sidingq/siding/internal/verify"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRun watches small fleets for a moment.
func TestRun(t *testing.T) {
	t.Parallel()
	verify.Long(t)
	proc.Find(t, "redis-server", "redis-server")
	var out strings.Builder
	if err := run(t.Context(), []string{"-json", "-watch", "300ms", "-servers", "2"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	var all []cost
	for line := range strings.Lines(out.String()) {
		var c cost
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		all = append(all, c)
	}
	if want := 2*len(variants) + 2; len(all) != want {
		t.Fatalf("want %d fleets, have %d", want, len(all))
	}
	off, polls := all[0], all[2]
	if polls.Sent < 30 || off.Sent > polls.Sent/2 || polls.Run < polls.Sent || polls.Connections == 0 {
		t.Errorf("want a server that polls to send some 100 commands a second, and one that does not next to none, have %+v, %+v", polls, off)
	}
	var table strings.Builder
	if err := write(&table, all); err != nil || strings.Count(table.String(), "\n") < len(all) {
		t.Errorf("want a line for each, have %v:\n%s", err, &table)
	}
}

func TestArguments(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-watch", "0s"}, {"-servers", "0"}, {"more"}} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil || !strings.HasPrefix(err.Error(), "want ") {
			t.Errorf("%q: want it refused, have %v", args, err)
		}
	}
}
