package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"text/tabwriter"
	"time"

	"github.com/sidingq/siding/internal/runstats"
)

// report tells the figures of a member that has ended: in its log, and with
// --json on standard output, too. They are those of this member alone; what
// became of a task in the end may be another's doing.
func (a *app) report(ctx context.Context, log *slog.Logger, s runstats.Summary) error {
	log.InfoContext(ctx, "worker ended", "tasks", s.Tasks, "succeeded", s.Succeeded, "contended", s.Contended, "refused", s.Refused,
		"lost", s.Lost, "handoff_p50", s.HandOffP50, "handoff_p99", s.HandOffP99)
	if !a.flags.json {
		return nil
	}
	return a.printJSON(struct {
		Tasks     int64 `json:"tasks"` // runs of handlers
		Succeeded int64 `json:"succeeded"`
		Contended int64 `json:"contended"`
		Refused   int64 `json:"refused"`
		Lost      int64 `json:"lost"`
		P50       int64 `json:"handoff_p50_us"`
		P99       int64 `json:"handoff_p99_us"`
	}{s.Tasks, s.Succeeded, s.Contended, s.Refused, s.Lost, s.HandOffP50.Microseconds(), s.HandOffP99.Microseconds()})
}

func (a *app) printJSON(v any) error {
	if err := json.NewEncoder(a.stdout).Encode(v); err != nil {
		return fault{fmt.Errorf("standard output: %w", err)}
	}
	return nil
}

// A result is what came out of a demo.
type result struct {
	Tasks     int   `json:"tasks"`
	Succeeded int   `json:"succeeded"`
	Archived  int   `json:"archived"`
	Contended int64 `json:"contended"` // tasks that had to wait at least once
	Refused   int64 `json:"refused"`   // refusals in all
	P50       int64 `json:"handoff_p50_us"`
	P99       int64 `json:"handoff_p99_us"`
	LedgerOK  bool  `json:"ledger_ok"`

	elapsed     time.Duration
	differences string // what the oracle found, when it did not agree
}

// err says what is wrong with a result, nil when nothing is.
func (r result) err() error {
	switch {
	case r.Succeeded != r.Tasks:
		return fmt.Errorf("want all %d tasks to succeed, have %d (%d archived)", r.Tasks, r.Succeeded, r.Archived)
	case !r.LedgerOK:
		return fmt.Errorf("the ledger differs from what the orders ask for: %s", r.differences)
	default:
		return nil
	}
}

// print tells a result to a reader.
func (a *app) print(r result) error {
	if a.flags.json {
		return a.printJSON(r)
	}
	perTask := 0.0
	if r.Contended > 0 {
		perTask = float64(r.Refused) / float64(r.Contended)
	}
	ledger := "agrees with a recomputation from the orders"
	if !r.LedgerOK {
		ledger = "DIFFERS from a recomputation from the orders"
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	for _, row := range [][3]any{
		{"tasks", r.Tasks, fmt.Sprintf("in %.1f s", r.elapsed.Seconds())},
		{"succeeded", r.Succeeded, ""},
		{"archived", r.Archived, ""},
		{"contended", r.Contended, "tasks had to wait for their resource"},
		{"refused", r.Refused, fmt.Sprintf("times in all, %.2f per contended task", perTask)},
		{"hand-off", milliseconds(r.P50), fmt.Sprintf("median from a release to the next holder; %s at the 99th percentile", milliseconds(r.P99))},
		{"ledger", map[bool]string{true: "right", false: "WRONG"}[r.LedgerOK], ledger},
	} {
		if _, err := fmt.Fprintf(w, "  %v\t%v\t%v\n", row[0], row[1], row[2]); err != nil {
			return fault{fmt.Errorf("standard output: %w", err)}
		}
	}
	if err := w.Flush(); err != nil {
		return fault{fmt.Errorf("standard output: %w", err)}
	}
	return nil
}

func milliseconds(us int64) string { return fmt.Sprintf("%.1f ms", float64(us)/1000) }
