package main

import (
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sidingq/siding/bench/internal/contest"
	"github.com/sidingq/siding/bench/internal/delay"
	"github.com/sidingq/siding/bench/internal/program"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/proc"
	"github.com/sidingq/siding/internal/verify"
)

// TestMain also runs the proxies that stand for a network.
func TestMain(m *testing.M) {
	if delay.Asked() {
		os.Exit(program.Run("queues", run)) //nolint:forbidigo // it is the main of another program here
	}
	goleak.VerifyTestMain(m)
}

// TestRun runs a few contenders in all scenarios, very small.
func TestRun(t *testing.T) {
	t.Parallel()
	verify.Long(t)
	proc.Find(t, "redis-server", "redis-server")
	var out strings.Builder
	args := []string{"-rounds", "1", "-scale", "0.01", "-limit", "10s", "-contenders", "siding,asynq,asynq+redislock-spin"}
	expect.OK(t, run(t.Context(), args, &out, io.Discard))
	for _, s := range scenarios() {
		for _, c := range []string{"siding", "asynq", "asynq+redislock-spin"} {
			_, block, _ := strings.Cut(out.String(), "\n\n"+s.Name+" ")
			block, _, _ = strings.Cut(block, "\n\n")
			expect.That(t, strings.Contains(block, "\n  "+c+" "), "want a row for %s in %s, have\n%s", c, s.Name, out.String())
		}
	}
}

// TestOthers runs a contender of each other kind. If one cannot be had, the program says so and
// goes on.
func TestOthers(t *testing.T) {
	t.Parallel()
	verify.Long(t)
	proc.Find(t, "redis-server", "redis-server")
	for _, rtt := range []string{"0s", "10ms"} {
		t.Run("rtt="+rtt, func(t *testing.T) {
			t.Parallel()
			var out, log strings.Builder
			args := []string{
				"-json", "-rounds", "1", "-scale", "0.01", "-limit", "10s", "-scenarios", "H,uncontended",
				"-contenders", "siding,sleep,bullmq-10ms,groupmq", "-rtt", rtt,
			}
			expect.OK(t, run(t.Context(), args, &out, &log))
			rates := make(map[string]float64)
			for _, f := range readJSON(t, out.String()) {
				if f.Case == "uncontended" && f.Figure == "done" {
					rates[f.Contender] = f.Median
				}
			}
			for _, c := range []string{"siding", "sleep", "bullmq-10ms", "groupmq"} {
				_, skipped, _ := strings.Cut(log.String(), "skipped: ")
				expect.That(t, rates[c] > 0 || strings.Contains(skipped, c), "want a rate of %s, or to be told why not; have %v and\n%s", c, rates, log.String())
			}
		})
	}
}

// TestPairs: Siding's contenders run the tasks with two keys.
func TestPairs(t *testing.T) {
	t.Parallel()
	proc.Find(t, "redis-server", "redis-server")
	names := strings.Join(contest.Names(sidingContenders()), ",")
	if err := run(t.Context(), strings.Fields("-rounds 1 -scale 0.001 -limit 5s -scenarios transfers -contenders "+names), io.Discard, io.Discard); err != nil {
		t.Error(err)
	}
}

// A line is one of the JSON that is written.
type line struct {
	Contender, Case, Figure string
	Median                  float64
}

func readJSON(t *testing.T, text string) (all []line) {
	t.Helper()
	for row := range strings.Lines(text) {
		var l line
		if err := json.Unmarshal([]byte(row), &l); err != nil {
			t.Fatalf("%v in %q", err, row)
		}
		all = append(all, l)
	}
	return all
}

// TestTwoAtOnce: plain asynq, said to exclude what it does not, is found out.
func TestTwoAtOnce(t *testing.T) {
	t.Parallel()
	c := asynqContenders()[0]
	c.unsafe = false
	proc.Find(t, "redis-server", "redis-server")
	b, err := newBench(t.Context(), options{
		rounds: 1, scale: 0.02, limit: 10 * time.Second, contenders: []contender{c}, scenarios: scenarios()[:1],
	}, io.Discard)
	expect.OK(t, err)
	// Whether two tasks meet is up to the machine.
	for range 10 {
		if err = b.run(t.Context()); err != nil {
			break
		}
	}
	expect.That(t, err != nil && strings.Contains(err.Error(), "asynq, H: 2 at once on hot"), "want two at once noticed, have %v", err)
}

func TestArguments(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"-rounds 0":            "at least 1",
		"-scale 0":             "more than 0",
		"-limit 0s":            "more than 0",
		"-contenders siding,x": `"x"`,
		"-scenarios H,x":       `"x"`,
		"-rtt -1ms":            "-rtt: want 0 to 100ms",
		"-rtt 101ms":           "-rtt: want 0 to 100ms",
		"-rtt 1":               "missing unit",
		"more":                 `"more"`,
	} {
		if err := run(t.Context(), strings.Fields(args), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: want an error with %s, have %v", args, want, err)
		}
	}
	if err := run(t.Context(), []string{"-h"}, io.Discard, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("want help, have %v", err)
	}
}
