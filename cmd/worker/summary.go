package main

import (
	"encoding/json"
	"fmt"
	"time"
)

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
	ledger := "right   agrees with a recomputation from the orders"
	if !r.LedgerOK {
		ledger = "WRONG   DIFFERS from a recomputation from the orders"
	}
	_, err := fmt.Fprintf(a.stdout, `  tasks      %-6d  in %.1f s
  succeeded  %d
  archived   %d
  contended  %-6d  tasks had to wait for their resource
  parked     %-6d  times in all, %.2f per contended task
  ledger     %s
`, r.Tasks, r.elapsed.Seconds(), r.Succeeded, r.Archived, r.Contended, r.Parked, perTask, ledger)
	if err != nil {
		return fmt.Errorf("standard output: %w", err)
	}
	return nil
}
