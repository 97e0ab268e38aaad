package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidingq/siding/internal/compare"
	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/tasks"
)

// someOrders are the first orders of the sample, with about a hundred tasks.
func someOrders() string {
	lines := strings.SplitAfterN(sample, "\n", 12)
	return strings.Join(lines[:len(lines)-1], "")
}

// compareLimit is far above what a comparison of a few tasks takes.
const compareLimit = 10 * time.Minute

// compared runs a comparison, and returns its table.
func compared(t *testing.T, a *app, want int, args ...string) (table, *inProcess) {
	t.Helper()
	w := startApp(t, a, nil, append([]string{"--demo", "--compare", "--json", "--embedded-port", port(t, vacant(t))}, args...)...)
	if have := w.wait(t, compareLimit); have != want {
		t.Fatalf("want exit status %d, have %d", want, have)
	}
	var have table
	text := w.stdout.String()
	if err := json.Unmarshal([]byte(text), &have); err != nil || strings.Count(text, "\n") != 1 {
		t.Fatalf("want one line of JSON, have %q, %v", text, err)
	}
	return have, w
}

// All four ways run the same tasks: each ledger has what the orders ask for.
func TestCompare(t *testing.T) {
	verify.Long(t)
	t.Parallel()
	a := &app{orders: someOrders(), limit: compareLimit / 4}
	have, w := compared(t, a, exitOK, "--work", "1ms")
	wantTexts(t, w.stderr.String(), "four ways")
	var names []string
	for _, r := range have.Ways {
		names = append(names, r.Way)
		if !r.Finished || r.Succeeded != have.Tasks || r.LedgerOK == nil || !*r.LedgerOK {
			t.Errorf("%s: want all tasks to succeed, and a right ledger, have %+v", r.Way, r)
		}
		if r.Refusals == 0 || r.Time < have.Ideal || r.Time > have.Limit || r.P50 == nil || r.P99 == nil || *r.P99 < *r.P50 || *r.P99 > r.Time {
			t.Errorf("%s: want contention, and times in their order, have %+v", r.Way, r)
		}
		if counts := r.Way == "retry 1s"; (r.Charged > 0) != counts {
			t.Errorf("%s: want attempts charged %t, have %d", r.Way, counts, r.Charged)
		}
	}
	if diff := cmp.Diff([]string{"sleep", "retry 1s", "retry 50ms", "siding"}, names); diff != "" {
		t.Errorf("ways: -want +have:\n%s", diff)
	}
	if have.Tasks < 50 || have.Others == 0 || have.Workers != 20 || have.Work != 1000 || have.Limit != a.limit.Microseconds() {
		t.Errorf("want some tasks, 20 workers, 1 ms and %v, have %+v", a.limit, have)
	}
}

// A way that does not finish ends at its limit, and the table says how many tasks were done.
func TestCompareLimit(t *testing.T) {
	verify.Long(t)
	t.Parallel()
	began := time.Now()
	a := &app{orders: someOrders(), limit: 300 * time.Millisecond}
	have, w := compared(t, a, exitFault, "--work", "200ms", "--concurrency", "2", "--shutdown-timeout", "1s")
	if took := time.Since(began); took > compareLimit/10 {
		t.Errorf("want four times %v, and some overhead, have %v", a.limit, took)
	}
	for _, r := range have.Ways {
		if r.Finished || r.LedgerOK != nil || r.Time != have.Limit || have.Limit != a.limit.Microseconds() || r.Succeeded >= have.Tasks {
			t.Errorf("%s: want it ended after %v, have %+v", r.Way, a.limit, r)
		}
		if r.P99 != nil {
			t.Errorf("%s: want some that have not started, have a wait of %d us", r.Way, *r.P99)
		}
	}
	wantTexts(t, w.stderr.String(), "worker: compare: siding: want all ", " to succeed")
}

func TestCompareInterrupted(t *testing.T) {
	verify.Long(t)
	t.Parallel()
	p := launch(t, "--demo", "--compare", "--work", "1s", "--embedded-port", port(t, vacant(t)))
	poll.Eventually(t, "the first way has begun", func() bool { return strings.Contains(p.Stderr.String(), "sleep: ") })
	p.Signal(t, os.Interrupt)
	if have := p.Wait(t, 30*time.Second); have != exitFault {
		t.Errorf("want exit status %d, have %d", exitFault, have)
	}
	wantTexts(t, p.Stderr.String(), "worker: compare: interrupted: ")
	if have := p.Stdout.String(); have != "" {
		t.Errorf("want nothing on standard output, have %s", have)
	}
	left, err := filepath.Glob(filepath.Join(p.Cmd.Dir, "siding-compare-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("want its ledgers removed, have %v, %v", left, err)
	}
}

// A way may take five times the ideal, but never less than half a minute.
func TestLimitOfAWay(t *testing.T) {
	t.Parallel()
	for ideal, want := range map[time.Duration]time.Duration{0: 30 * time.Second, 6 * time.Second: 30 * time.Second, 7 * time.Second: 35 * time.Second} {
		if have := limitOf(ideal); have != want {
			t.Errorf("ideal %v: want %v, have %v", ideal, want, have)
		}
	}
}

// A form that is submitted again needs no work, which the ideal must not count.
func TestNeeds(t *testing.T) {
	t.Parallel()
	const work = 7 * time.Millisecond
	job := func(id string, task queue.Task) queue.Job {
		return queue.Job{Task: task, Options: &queue.Options{TaskID: id}}
	}
	have := needs([]queue.Job{
		job("1", tasks.AuditOrder{Order: "7001"}),
		job("2", tasks.PlaceOrder{User: "ann", Submission: "form-1"}),
		job("3", tasks.PlaceOrder{User: "ann", Submission: "form-1"}),
		job("4", tasks.PlaceOrder{User: "ann", Submission: "form-2"}),
		job("5", tasks.PlaceOrder{User: "bob", Submission: "form-1"}),
	}, work)
	want := []compare.Job{
		{ID: "1", Resource: "order:7001", Work: work},
		{ID: "2", Resource: "user:ann", Work: work},
		{ID: "3", Resource: "user:ann"},
		{ID: "4", Resource: "user:ann", Work: work},
		{ID: "5", Resource: "user:bob", Work: work},
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("-want +have:\n%s", diff)
	}
}

// The table says what is better where, and of a way without an end that it has none.
func TestTable(t *testing.T) {
	t.Parallel()
	var stdout, stderr strings.Builder
	a := &app{stdout: &stdout, stderr: &stderr}
	us, wrong := int64(40_000), false
	have := table{Tasks: 3, Others: 1, Workers: 2, Work: 1000, Limit: 5_000_000, Ideal: 500_000, Ways: []row{
		{Way: "slow", Time: 5_000_000, Succeeded: 1, P50: &us},
		{Way: "siding", Finished: true, Time: 600_000, Succeeded: 2, Archived: 1, Charged: 25, P50: &us, P99: &us, LedgerOK: &wrong, differences: "order 7001"},
	}}
	if err := have.show(a); err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	for line := range strings.Lines(stdout.String()) {
		if f := strings.Fields(line); len(f) > 9 && (f[0] == "slow" || f[0] == "siding") {
			rows = append(rows, f)
		}
	}
	want := []string{"slow > 5.00 > 10.0 1 0 0.04 > 5.00 0 0 not done", "siding 0.60 1.2 2 0 0.04 0.04 25 1 WRONG"}
	for i, r := range rows {
		if have := strings.Join(r, " "); i >= len(want) || have != want[i] {
			t.Errorf("row %d: want %q, have %q", i, want[min(i, len(want)-1)], have)
		}
	}
	if len(rows) != len(want) {
		t.Errorf("want %d rows, have %s", len(want), stdout.String())
	}
	if err := have.err(); err == nil || !strings.Contains(err.Error(), "have 2 (1 archived)") {
		t.Errorf("want the task that is missing named, have %v", err)
	}
	have.Ways[1].Succeeded = 3
	if err := have.err(); err == nil || !strings.Contains(err.Error(), "order 7001") {
		t.Errorf("want the difference named, have %v", err)
	}
}
