package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/sidingq/siding/internal/cli"
	"github.com/sidingq/siding/tasks/orders"
)

// A report lists the first maxRefusals, and shows people the first shownRefusals; the rest is only counted. So it stays small
// whatever a stream without an end brings.
const (
	maxRefusals   = 10_000
	shownRefusals = 20
)

// A report says what became of an input.
type report struct {
	// Source is the file's name, or "-".
	Source string `json:"source"`
	DryRun bool   `json:"dry_run,omitempty"`
	// Complete says that the whole input is done.
	Complete bool `json:"complete"`
	// Through is the line up to which this run and those before it have done
	// everything. This one began behind ResumedAfter.
	Through      int `json:"through"`
	ResumedAfter int `json:"resumed_after,omitempty"`

	Enqueued     int `json:"enqueued"`
	WouldEnqueue int `json:"would_enqueue,omitempty"` // in a dry run
	Replaced     int `json:"replaced,omitempty"`      // of those that were enqueued before, by a debounce
	AlreadyThere int `json:"already_there"`
	Refused      int `json:"refused"`
	// Refusals are the first maxRefusals.
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
func (r *report) refuse(line int, err error) {
	// The line has its own field. Errors about lines begin with it.
	one := refusal{line, strings.TrimPrefix(err.Error(), fmt.Sprintf("line %d: ", line))}
	r.Refused++
	if len(r.Refusals) < maxRefusals {
		r.Refusals = append(r.Refusals, one)
	}
}

// write writes the report as one line of JSON, or for people.
func (r *report) write(w io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(r)
	}
	_, err := io.WriteString(w, r.String())
	return err
}

// String is the report for people.
func (r *report) String() string {
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
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", r.Source, state)
	row := func(n int, what string) { fmt.Fprintf(&b, "%9d  %s\n", n, what) }
	some := func(n int, what string) {
		if n > 0 {
			row(n, what)
		}
	}
	if o := r.Orders; o != nil {
		row(o.Lines, fmt.Sprintf("lines of %d orders, of which %d cancellations", o.Orders, o.Cancellations))
		some(o.CameBack, "times an order came back after another, with more lines")
	}
	if r.DryRun {
		row(r.WouldEnqueue, "tasks would be enqueued")
	} else {
		row(r.Enqueued, "tasks enqueued")
		some(r.Replaced, "tasks replaced, by later ones with the same debounce")
		there := "tasks were there already"
		if r.ResumedAfter > 0 {
			there += fmt.Sprintf("; all up to line %d, by the checkpoint", r.ResumedAfter)
		}
		row(r.AlreadyThere, there)
	}
	if o := r.Orders; o != nil {
		some(o.Skipped.NoCustomer, "debits left out: no customer")
		some(o.Skipped.ZeroValue, "debits left out: the order's value is zero")
		some(o.Skipped.ServiceCode, "deductions left out: a service, not goods")
		some(o.Skipped.ZeroQuantity, "lines left out: the quantity is zero")
	}
	row(r.Refused, "refused")
	for _, refusal := range r.Refusals[:min(shownRefusals, len(r.Refusals))] {
		fmt.Fprintf(&b, "           line %d: %s\n", refusal.Line, cli.Plain(refusal.Why))
	}
	if more := r.Refused - shownRefusals; more > 0 {
		fmt.Fprintf(&b, "           and %d more; --json lists them\n", more)
	}
	return b.String()
}
