package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/sidingq/siding/bench/internal/contest"
	"github.com/sidingq/siding/bench/internal/judge"
	"github.com/sidingq/siding/bench/internal/redisstat"
	"github.com/sidingq/siding/bench/internal/report"
	"github.com/sidingq/siding/internal/testenv/proc"
)

func (b *bench) say(format string, args ...any) { _, _ = fmt.Fprintf(b.log, format+"\n", args...) }

// A column is one figure of a verdict.
type column struct {
	name string
	of   func(judge.Verdict) string
}

func columns() []column {
	count := func(of func(judge.Verdict) int) func(judge.Verdict) string {
		return func(v judge.Verdict) string { return strconv.Itoa(of(v)) }
	}
	return []column{
		{"overlaps", func(v judge.Verdict) string {
			if v.Overlaps == 0 {
				return "0"
			}
			return fmt.Sprintf("%d, %.1f ms", v.Overlaps, report.MS(v.Longest))
		}},
		{"late ends", func(v judge.Verdict) string {
			if v.Fenced == 0 {
				return strconv.Itoa(v.Late)
			}
			return fmt.Sprintf("%d, %d fenced", v.Late, v.Fenced)
		}},
		{"lost", func(v judge.Verdict) string {
			if v.Queued == 0 {
				return strconv.Itoa(v.Lost)
			}
			return fmt.Sprintf("%d, %d queued", v.Lost, v.Queued)
		}},
		{"repeated", count(func(v judge.Verdict) int { return v.Repeated })},
		{"out of order", count(func(v judge.Verdict) int { return v.Disorder })},
		{"charged", count(func(v judge.Verdict) int { return v.Charged })},
		{"stuck keys", count(func(v judge.Verdict) int { return v.Stuck })},
		{"key's next, s", func(v judge.Verdict) string { return seconds(v.NextOfKey) }},
		{"task's next, s", func(v judge.Verdict) string { return seconds(v.Rerun) }},
	}
}

func seconds(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	if d == judge.Never {
		return "never"
	}
	return fmt.Sprintf("%.1f", d.Seconds())
}

// cells are those of the row of a result.
func (r result) cells() (all []string) {
	if r.err != nil {
		return []string{"no verdict: " + strings.Join(strings.Fields(r.err.Error()), " ")}
	}
	for _, c := range columns() {
		all = append(all, c.of(r.verdict))
	}
	return all
}

// String reads like "kill9, siding: overlaps 0; lost 0".
func (r result) String() string {
	parts := r.cells()
	for i, c := range columns() {
		if r.err == nil {
			parts[i] = c.name + " " + parts[i]
		}
	}
	return fmt.Sprintf("%s, %s: %s", r.scenario.Name, r.contender.Name, strings.Join(parts, "; "))
}

// writeTable writes a row for each result, contender by contender.
func (b *bench) writeTable(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range b.contenders {
		header := []string{"\n" + c.Name}
		for _, column := range columns() {
			header = append(header, column.name)
		}
		_, _ = fmt.Fprintln(table, strings.Join(header, "\t"))
		for _, r := range b.results {
			if r.contender.Name == c.Name {
				_, _ = fmt.Fprintln(table, strings.Join(append([]string{"  " + r.scenario.Name}, r.cells()...), "\t"))
			}
		}
	}
	return table.Flush()
}

func (b *bench) writeJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	for _, r := range b.results {
		line := struct {
			Contender string `json:"contender"`
			Scenario  string `json:"scenario"`
			Seed      uint64 `json:"seed"`
			Error     string `json:"error,omitempty"`
			judge.Verdict
		}{Contender: r.contender.Name, Scenario: r.scenario.Name, Seed: b.seed, Verdict: r.verdict}
		if r.err != nil {
			line.Error = r.err.Error()
		}
		if err := encoder.Encode(line); err != nil {
			return err
		}
	}
	return nil
}

// writeSetting says what is tortured, and on what.
func (b *bench) writeSetting(ctx context.Context, w io.Writer) error {
	server, err := redisstat.Version(ctx)
	if err != nil {
		return err
	}
	programs := []string{server}
	if postgres, err := proc.Look("postgresql", "postgres", "/usr/lib/postgresql/*/bin/postgres"); err == nil {
		out, _ := exec.CommandContext(ctx, postgres, "--version").Output()
		programs = append(programs, strings.TrimPrefix(strings.TrimSpace(string(out)), "postgres "))
	}
	return contest.WriteSetting(ctx, w, programs, []string{
		fmt.Sprintf("seed %d, at most %v for each scenario", b.seed, b.timeout),
		fmt.Sprintf("each contender: %d tasks of 100 to 500 ms on each of %d keys, enqueued at once; %d worker processes with %d slots", each, keys, fleet, slots),
	}, b.contenders, b.scenarios)
}
