package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sidingq/siding/tasks/orders"
)

// maxRefusals is how many refusals a report lists; the rest is only counted.
const maxRefusals = 20

// A report says what became of an input.
type report struct {
	// Source is the file's name, or "-".
	Source string `json:"source"`
	DryRun bool   `json:"dry_run,omitempty"`
	// Complete says that the whole input was dealt with.
	Complete bool `json:"complete"`
	// Through is the last line up to which everything was dealt with, by this
	// run and those before it; ResumedAfter is where this one began.
	Through      int `json:"through"`
	ResumedAfter int `json:"resumed_after,omitempty"`

	Enqueued     int `json:"enqueued"`
	WouldEnqueue int `json:"would_enqueue,omitempty"` // in a dry run
	AlreadyThere int `json:"already_there"`
	Refused      int `json:"refused"`
	// Refusals are the first of the refused.
	Refusals []refusal `json:"refusals,omitempty"`
	// Orders is set for an order file.
	Orders *orders.Counts `json:"orders,omitempty"`

	Seconds float64 `json:"seconds"`
	Error   string  `json:"error,omitempty"`
}

// A refusal says why a line was refused.
type refusal struct {
	Line int    `json:"line"`
	Why  string `json:"why"`
}

// refuse adds a refused line.
func (r *report) refuse(one refusal) {
	r.Refused++
	if len(r.Refusals) < maxRefusals {
		r.Refusals = append(r.Refusals, one)
	}
}

// finish ends the report of a run that took so long and ended with err.
func (r *report) finish(took time.Duration, err error) {
	r.Seconds = took.Seconds()
	if err != nil {
		r.Error = err.Error()
	}
}

// writeJSON writes the report as one line.
func (r *report) writeJSON(w io.Writer) error { return json.NewEncoder(w).Encode(r) }

// writeText writes the report for people.
func (r *report) writeText(w io.Writer) error {
	var b strings.Builder
	state := fmt.Sprintf("stopped behind line %d", r.Through)
	switch {
	case r.Complete && r.DryRun:
		state = "checked, nothing was enqueued"
	case r.DryRun:
		state = "not checked to its end"
	case r.Complete && r.Enqueued == 0 && r.AlreadyThere > 0:
		state = "everything was already enqueued"
	case r.Complete:
		state = "done"
	}
	fmt.Fprintf(&b, "%s: %s\n", r.Source, state)
	row := func(n int, text string) { fmt.Fprintf(&b, "%9d  %s\n", n, text) }
	if o := r.Orders; o != nil {
		row(o.Lines, fmt.Sprintf("lines of %d orders, of which %d cancellations", o.Orders, o.Cancellations))
		if o.CameBack > 0 {
			row(o.CameBack, "times an order came back after another, with more lines")
		}
	}
	if r.DryRun {
		row(r.WouldEnqueue, "tasks would be enqueued")
	} else {
		row(r.Enqueued, "tasks enqueued")
		there := "tasks were there already"
		if r.ResumedAfter > 0 {
			there += fmt.Sprintf("; all up to line %d, by the checkpoint", r.ResumedAfter)
		}
		row(r.AlreadyThere, there)
	}
	if o := r.Orders; o != nil {
		for _, skipped := range []struct {
			n    int
			text string
		}{
			{o.Skipped.NoCustomer, "debits left out: no customer"},
			{o.Skipped.ZeroValue, "debits left out: the order's value is zero"},
			{o.Skipped.ServiceCode, "deductions left out: a service, not goods"},
			{o.Skipped.ZeroQuantity, "lines left out: the quantity is zero"},
		} {
			if skipped.n > 0 {
				row(skipped.n, skipped.text)
			}
		}
	}
	row(r.Refused, "refused")
	for _, refusal := range r.Refusals {
		fmt.Fprintf(&b, "           line %d: %s\n", refusal.Line, refusal.Why)
	}
	if more := r.Refused - len(r.Refusals); more > 0 {
		fmt.Fprintf(&b, "           and %d more; --refused FILE lists all\n", more)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
