package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/cli"
	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/queue"
)

// stopped returns a testbed on which the task "first" has stopped the line of order:1, in which "second" and "third" wait.
func stopped(t *testing.T) *testbed {
	t.Helper()
	b := newTestbed(t)
	for _, id := range []string{"first", "second", "third"} {
		if _, err := b.client.Enqueue(t.Context(), job{"order:1"}, &queue.Options{TaskID: id, Retries: queue.NoRetries, Policy: &queue.Policy{OnFailure: queue.OnFailureStop}}); err != nil {
			t.Fatal(err)
		}
	}
	b.fail.Store("first", errors.New("no such order"))
	b.serve(t)
	b.awaitLine(t, 2)
	return b
}

// awaitLine waits until a single line has stopped, with so many tasks behind its first.
func (b *testbed) awaitLine(t *testing.T, waiting int) {
	t.Helper()
	poll.Eventually(t, "the line has stopped", func() bool {
		lines, _ := answer[[]inspect.HeldLine](t, b, "lines")
		return len(lines) == 1 && lines[0].Stopped && lines[0].Waiting == waiting
	})
}

// What the tools say of a line that has stopped, and how retry and skip set it going.
func TestStoppedLine(t *testing.T) {
	t.Parallel()
	b := stopped(t)
	lines, status := answer[[]inspect.HeldLine](t, b, "lines")
	if l := lines[0]; status != cli.StatusOK || l.Resource != "order:1" || l.Task != (inspect.Task{Queue: "default", ID: "first", Kind: "test:job"}) || l.Error != "no such order" || l.Since.IsZero() {
		t.Errorf("lines: have %+v", l)
	}
	if d, _ := answer[diagnosis](t, b, "doctor"); d.Queues[0].Held != 1 || d.Queues[0].Stopped != 1 || d.Queues[0].Waiting != 2 || d.Queues[0].Archived != 1 {
		t.Errorf("doctor: want one line stopped and two tasks waiting, have %+v", d.Queues)
	}
	for args, want := range map[string]struct {
		status int
		text   string
	}{
		"lines":        {cli.StatusOK, "order:1   test:job first  default"},
		"why first":    {exitTrouble, "Yes: the task is archived: no such order. It has stopped the line of order:1, in which 2 others wait."},
		"why third":    {exitTrouble, "Yes: the line of order:1 is stopped by the task first, which is archived: no such order."},
		"doctor":       {exitTrouble, "the line of order:1 waits for test:job first in default, which has failed: no such order"},
		"show order:1": {cli.StatusOK, "line stopped by test:job first in default, which failed "},
	} {
		have := b.run(t, "", strings.Fields(args)...)
		if have.status != want.status || !strings.Contains(strings.Join(strings.Fields(have.out), " "), strings.Join(strings.Fields(want.text), " ")) {
			t.Errorf("%s: want %d and %q, have %+v", args, want.status, want.text, have)
		}
	}
	for args, want := range map[string]string{
		"retry second":                 `nothing has changed: the line of order:1 is held by the task "first", not by "second"`,
		"skip second --reason x --yes": `nothing has changed: the line of order:1 is held by the task "first", not by "second"`,
		"retry nobody":                 `no queue has a task "nobody"`,
		"skip first":                   `required flag(s) "reason" not set`,
		"retry":                        `want "retry TASK", have 0 arguments`,
	} {
		if have := b.run(t, "", strings.Fields(args)...); have.status == cli.StatusOK || !strings.Contains(have.err, want) {
			t.Errorf("%s: want %q, have %+v", args, want, have)
		}
	}
	if have := b.run(t, "no\n", "skip", "first", "--reason", "drill"); have.status != cli.StatusFault || !strings.HasSuffix(have.err, "Type yes: lockctl: first: the answer was \"no\": nothing has changed\n") {
		t.Errorf("skip: want a question, and nothing changed, have %+v", have)
	}

	// It fails again, and the line stops again.
	if have := b.run(t, "", "retry", "first"); have.status != cli.StatusOK || have.out != "first runs again as soon as order:1 is free. 2 tasks wait behind it.\n" {
		t.Errorf("retry: have %+v", have)
	}
	poll.Eventually(t, "it has failed again", func() bool { return b.runs("first") == 2 })
	b.awaitLine(t, 2)

	have := b.run(t, "", "skip", "first", "--reason", "no such order", "--by", "alice", "--yes", "--json")
	if want := `"outcome":"skipped","waiting":2,"by":"alice","reason":"no such order"}`; have.status != cli.StatusOK || !strings.Contains(have.out, want) {
		t.Errorf("skip: want %s, have %+v", want, have)
	}
	if want := `outcome=skipped by=alice reason="no such order"`; !strings.Contains(have.err, want) {
		t.Errorf("skip: want a record with %s, have %s", want, have.err)
	}
	b.finish <- struct{}{}
	b.finish <- struct{}{}
	poll.Eventually(t, "the others have run, in order", func() bool { return b.runs("second") == 1 && b.runs("third") == 1 })
	e, status := answer[inspect.Explanation](t, b, "why", "first")
	if e.State != inspect.StateArchived || e.Line != nil || e.LastError != "skipped by alice: no such order; before: no such order" {
		t.Errorf("want the task archived, and the reason in it, have status %d, %+v", status, e)
	}
	if have := b.run(t, "", "retry", "first"); have.status != cli.StatusFault || !strings.Contains(have.err, `the task "first" holds no line`) {
		t.Errorf("retry of a task that holds none: have %+v", have)
	}
	if lines, _ := answer[[]inspect.HeldLine](t, b, "lines"); len(lines) > 0 {
		t.Errorf("want no line held, have %+v", lines)
	}
}

// A task that has stopped its line succeeds when it is run again, and the line goes on.
func TestRetriedLineGoesOn(t *testing.T) {
	t.Parallel()
	b := stopped(t)
	b.fail.Delete("first")
	if have := b.run(t, "", "--json", "retry", "first", "--queue", "default"); have.status != cli.StatusOK {
		t.Errorf("retry: have %+v", have)
	}
	for range 3 {
		b.finish <- struct{}{}
	}
	poll.Eventually(t, "all have run", func() bool { return b.runs("third") == 1 })
	if want := []string{"first", "first", "second", "third"}; !b.ran(want...) {
		t.Errorf("want %v, have %v", want, b.order)
	}
}
