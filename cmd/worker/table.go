package main

import (
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/sidingq/siding/internal/compare"
)

// A table has the figures of a comparison. Times are in microseconds.
type table struct {
	Tasks    int      `json:"tasks"`
	Others   int      `json:"others"` // tasks that are the first of their resource
	Workers  int      `json:"workers"`
	Work     int64    `json:"work_us"`  // of each task
	Limit    int64    `json:"limit_us"` // of each way
	Ideal    int64    `json:"ideal_us"`
	IdealP50 int64    `json:"ideal_others_p50_us"`
	IdealP99 int64    `json:"ideal_others_p99_us"`
	Shared   []string `json:"shared_settings"` // of all ways but Siding
	Ways     []row    `json:"ways"`
}

// A row has the figures of one way.
type row struct {
	Way       string   `json:"way"`
	Settings  []string `json:"settings"`
	Finished  bool     `json:"finished"` // before the limit
	Time      int64    `json:"time_us"`
	Succeeded int      `json:"succeeded"`
	Refusals  int      `json:"refusals"`
	P50       *int64   `json:"others_p50_us"` // null if they have not started
	P99       *int64   `json:"others_p99_us"`
	Charged   int      `json:"charged"`
	Archived  int      `json:"archived"`
	LedgerOK  *bool    `json:"ledger_ok"` // null without the end

	differences string // that the oracle found, if any
}

func micros(d time.Duration) int64 { return d.Microseconds() }

func duration(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// started returns a wait in microseconds, nil if it has no end.
func started(wait time.Duration) *int64 {
	if wait == compare.Never {
		return nil
	}
	us := micros(wait)
	return &us
}

// err returns what is wrong with Siding, nil if nothing is. What is wrong with the others is a result.
func (t table) err() error {
	r := t.Ways[len(t.Ways)-1]
	switch {
	case r.Succeeded != t.Tasks:
		return fmt.Errorf("compare: %s: want all %d tasks to succeed, have %d (%d archived) in %v", r.Way, t.Tasks, r.Succeeded, r.Archived, duration(r.Time))
	case r.differences != "":
		return fmt.Errorf("compare: %s: the ledger differs from what the orders ask for: %s", r.Way, r.differences)
	default:
		return nil
	}
}

// show prints the table for a reader, or as a line of JSON.
func (t table) show(a *app) error {
	if a.flags.json {
		return a.printJSON(t)
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) } // Flush has the error
	settings := func(name string, all []string) {
		for _, one := range all {
			line("%-10s  %s", name, one)
			name = ""
		}
	}
	line("\nsettings")
	settings("asynq", t.Shared)
	for _, r := range t.Ways {
		settings(r.Way, r.Settings)
	}
	line("\nway\ttime, s\tof ideal\tdone\trefused\tothers p50\tp99, s\tcharged\tarchived\tledger")
	line("ideal\t%s\t1.0\t%d\t0\t%s\t%s\t0\t0\tright", seconds(t.Ideal), t.Tasks, seconds(t.IdealP50), seconds(t.IdealP99))
	for _, r := range t.Ways {
		line("%s\t%s%s\t%s%.1f\t%d\t%d\t%s\t%s\t%d\t%d\t%s", r.Way, r.above(), seconds(r.Time), r.above(), float64(r.Time)/float64(max(t.Ideal, 1)),
			r.Succeeded, r.Refusals, r.wait(r.P50), r.wait(r.P99), r.Charged, r.Archived, r.ledger())
	}
	for _, text := range []string{
		fmt.Sprintf("\ntime      until the last task was done; %v at most", duration(t.Limit)),
		fmt.Sprintf("ideal     the tasks of one resource in a row, or all work on %d workers", t.Workers),
		fmt.Sprintf("done      tasks that have succeeded, of %d with %v of work each", t.Tasks, duration(t.Work)),
		"refused   times that a task found its lock busy",
		fmt.Sprintf("others    the first tasks of the %d resources, which wait for a worker alone;", t.Others),
		"          ideal: first come, first served, at no cost",
		"charged   attempts that used a retry",
		"archived  tasks without a retry left, which asynq does not run again",
		"ledger    whether the database agrees with a recomputation from the orders",
	} {
		line("%s", text)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("standard output: %w", err)
	}
	return nil
}

// above marks figures that are no more than a bound.
func (r row) above() string {
	if r.Finished {
		return ""
	}
	return "> "
}

// wait shows a wait, which has not ended if it is nil.
func (r row) wait(us *int64) string {
	if us == nil {
		return "> " + seconds(r.Time)
	}
	return seconds(*us)
}

func (r row) ledger() string {
	switch {
	case r.LedgerOK == nil:
		return "not done"
	case *r.LedgerOK:
		return "right"
	default:
		return "WRONG"
	}
}

func seconds(us int64) string { return fmt.Sprintf("%.2f", duration(us).Seconds()) }
