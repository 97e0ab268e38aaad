package main

import (
	"encoding/json"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/sidingq/siding/internal/member"
)

// report prints the figures of a worker that has ended, with --json. The figures are of this
// worker alone, and other workers may have run the same tasks.
func (a *app) report(s member.Summary) error {
	if !a.flags.json {
		return nil
	}
	return a.printJSON(s)
}

func (a *app) printJSON(v any) error {
	if err := json.NewEncoder(a.stdout).Encode(v); err != nil {
		return fmt.Errorf("standard output: %w", err)
	}
	return nil
}

// A result has the figures of a demo.
type result struct {
	Tasks     int   `json:"tasks"`
	Succeeded int   `json:"succeeded"`
	Archived  int   `json:"archived"`
	Contended int64 `json:"contended"` // tasks that had to wait at least once
	Parked    int64 `json:"parked"`    // times in all
	LedgerOK  bool  `json:"ledger_ok"`

	elapsed     time.Duration
	differences string // that the oracle found, if any
}

// err returns what is wrong with a result, nil if nothing is.
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

// print prints a result for a reader.
func (a *app) print(r result) error {
	if a.flags.json {
		return a.printJSON(r)
	}
	perTask := 0.0
	if r.Contended > 0 {
		perTask = float64(r.Parked) / float64(r.Contended)
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
		{"parked", r.Parked, fmt.Sprintf("times in all, %.2f per contended task", perTask)},
		{"ledger", map[bool]string{true: "right", false: "WRONG"}[r.LedgerOK], ledger},
	} {
		if _, err := fmt.Fprintf(w, "  %v\t%v\t%v\n", row[0], row[1], row[2]); err != nil {
			return fmt.Errorf("standard output: %w", err)
		}
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("standard output: %w", err)
	}
	return nil
}
