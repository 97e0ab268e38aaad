package main

import (
	"encoding/json"
	"errors"
	"flag"
	"io"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/sidingq/siding/internal/testenv/proc"
	"github.com/sidingq/siding/internal/verify"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// small are the arguments of a run that is soon over, and that a busy machine does not fail.
var small = []string{"-rounds", "1", "-ops", "1", "-handoffs", "1", "-waiters", "2", "-node-timeout", "1s"}

// TestRun runs every contender in every case, but for the one that waits for many seconds while a
// node hangs.
func TestRun(t *testing.T) {
	t.Parallel()
	verify.Long(t)
	proc.Find(t, "redis-server", "redis-server")
	proc.Find(t, "etcd-server", "etcd")
	var take []string
	for _, c := range contenders(defaultTimeouts()) {
		if !c.hungOnly {
			take = append(take, c.Name)
		}
	}
	var out strings.Builder
	args := append([]string{"-contenders", strings.Join(take, ",")}, small...)
	if err := run(t.Context(), args, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	blocks := []string{"uncontended, 1 at once", "uncontended, 16 at once", "waiters 2, processes 3", "one node hangs"}
	for _, want := range append(blocks, "redis-1, an empty script", "etcd-1, a put", "etcd-3, a put") {
		if !strings.Contains(out.String(), "\n"+want) {
			t.Errorf("want a block for %q, have\n%s", want, out.String())
		}
	}
	for _, c := range contenders(defaultTimeouts()) {
		want := 0
		switch {
		case c.hungOnly:
		case c.hung > 0:
			want = len(blocks)
		default:
			want = len(blocks) - 1
		}
		if have := strings.Count(out.String(), "\n  "+c.Name+" "); have != want {
			t.Errorf("%s: want %d rows, have %d of\n%s", c.Name, want, have, out.String())
		}
	}
}

// TestHungNode: of five nodes one hangs, in lines that a program can read.
func TestHungNode(t *testing.T) {
	t.Parallel()
	proc.Find(t, "redis-server", "redis-server")
	var out strings.Builder
	args := append([]string{"-json", "-contenders", "redis-5-siding,redis-5-redsync-failfast"}, small...)
	if err := run(t.Context(), args, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]float64)
	for line := range strings.Lines(out.String()) {
		var f struct {
			Contender, Case, Figure string
			Median                  float64
		}
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		seen[f.Contender+" "+f.Case+" "+f.Figure] = f.Median
	}
	for _, figure := range []string{"lock p50", "unlock p50"} {
		if have := seen["redis-5-siding one node hangs "+figure]; have < 900 {
			t.Errorf("%s: want the node timeout waited for, have %v ms of %v", figure, have, seen)
		}
		if have := seen["redis-5-redsync-failfast one node hangs "+figure]; have <= 0 {
			t.Errorf("%s: want some time, have %v ms of %v", figure, have, seen)
		}
	}
}

func TestArguments(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"-rounds 0":                    "at least 1",
		"-waiters 0":                   "above 0",
		"-contenders redis-1-siding,x": `"x"`,
		"-node-timeout x":              `"x"`,
		"more":                         `"more"`,
	} {
		if err := run(t.Context(), strings.Fields(args), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: want an error with %s, have %v", args, want, err)
		}
	}
	if err := run(t.Context(), []string{"-h"}, io.Discard, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("want help, have %v", err)
	}
}

// TestNoServer: a program that is not installed is named.
func TestNoServer(t *testing.T) {
	for contender, want := range map[string]string{"redis-5-siding": "redis-server", "etcd-1-siding": "etcd"} {
		t.Run(want, func(t *testing.T) {
			t.Setenv("PATH", t.TempDir())
			err := run(t.Context(), []string{"-contenders", contender}, io.Discard, io.Discard)
			if err == nil || !strings.Contains(err.Error(), `"`+want+`"`) {
				t.Errorf("want an error that names %s, have %v", want, err)
			}
		})
	}
}
