package main

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/cli"
	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/queue"
)

// stopped returns a testbed on which the task "first" has stopped the line of order:1, in which "second" and "third" wait.
func stopped(t *testing.T) *testbed {
	t.Helper()
	b := newTestbed(t)
	for _, id := range []string{"first", "second", "third"} {
		b.enqueue(t, id, "order:1", queue.Options{Retries: queue.NoRetries, Policy: &queue.Policy{OnFailure: queue.OnFailureStop}})
	}
	b.fail.Store("first", errors.New("no such order"))
	b.serve(t)
	b.awaitLine(t, 2)
	return b
}

// awaitLine waits until a single line has stopped, with so many tasks behind its first.
func (b *testbed) awaitLine(t *testing.T, waiting int) {
	t.Helper()
	expect.Eventually(t, "the line has stopped", func() bool {
		one, _ := answer[shown](t, b, "show", "order:1")
		lines := one.Lock.Lines
		return len(lines) == 1 && lines[0].Stopped && lines[0].Waiting == waiting
	})
}

// What the tools say of a line that has stopped, and how run and archive set it going.
func TestStoppedLine(t *testing.T) {
	t.Parallel()
	b := stopped(t)
	if d, _ := answer[diagnosis](t, b, "doctor"); d.Queues[0].Held != 1 || d.Queues[0].Stopped != 1 || d.Queues[0].Waiting != 2 || d.Queues[0].Archived != 1 {
		t.Errorf("doctor: want one line stopped and two tasks waiting, have %+v", d.Queues)
	}
	b.says(t, "", "why first", exitTrouble, "Yes: the task is archived: no such order. It has stopped the line of order:1, in which 2 others wait.")
	b.says(t, "", "why third", exitTrouble, "Yes: the line of order:1 is stopped by the task first, which is archived: no such order.")
	b.says(t, "", "doctor", exitTrouble, "the line of order:1 waits for test:job first in default, which has failed: no such order…; 2 tasks wait behind it")
	b.says(t, "", "show order:1", cli.StatusOK, " stopped by test:job first in default, which failed ")
	b.says(t, "", "show order:1", cli.StatusOK, "; `lockctl run first` or `lockctl archive --reason TEXT first` sets it going\n")
	b.says(t, "", "run second", cli.StatusFault, waitsInLine)
	b.says(t, "", "delete first --reason x --yes", cli.StatusFault, "nothing has changed: the task \"first\" holds the line of order:1: `lockctl archive --reason TEXT first` gives it up first\n")
	b.says(t, "", "run nobody", cli.StatusFault, `no queue has a task "nobody"`)
	b.says(t, "", "archive first", cli.StatusUsage, `required flag(s) "reason" not set`)
	b.says(t, "", "run", cli.StatusUsage, `want "run TASK", have no arguments`)
	b.says(t, "no\n", "archive first --reason drill", cli.StatusFault, " Its line goes on. Type yes: lockctl: first: the answer was \"no\": nothing has changed\n")

	line := taskredis.LineKey("default", "lock:order:1")
	third := redis.Z{Member: "third", Score: expect.Value(b.rdb.ZScore(t.Context(), line, "third").Result())(t)}
	expect.OK(t, b.rdb.ZRem(t.Context(), line, "third").Err()) // as an eviction or a failover does
	b.says(t, "", "why third", exitTrouble, "has to have that task run, or to give it up.\n")
	expect.OK(t, b.rdb.ZAdd(t.Context(), line, third).Err())

	// It fails again, and the line stops again.
	b.says(t, "", "run first", cli.StatusOK, "first is retried, by …. It runs next in the line of order:1: 2 tasks wait behind it.\n…resource=order:1 outcome=retried by=")
	expect.Eventually(t, "it has failed again", func() bool { return b.runs("first") == 2 })
	b.awaitLine(t, 2)

	b.says(t, "", "archive first --reason canceled --by alice --yes --json", cli.StatusOK,
		`"resource":"order:1","outcome":"archived","waiting":2,"by":"alice","reason":"canceled"}…outcome=archived by=alice reason=canceled`)
	b.letOneSucceed(t)
	b.letOneSucceed(t)
	expect.Eventually(t, "the others have run, in order", func() bool { return b.runs("second") == 1 && b.runs("third") == 1 })
	e, status := answer[inspect.Explanation](t, b, "why", "first")
	if e.State != inspect.StateArchived || e.Line != nil || e.LastError != "skipped by alice: canceled; before: no such order" {
		t.Errorf("want the task archived, and the reason in it, have status %d, %+v", status, e)
	}
	b.says(t, "", "archive first --reason x --yes", cli.StatusFault, "it is archived already")
}

// A task that has stopped its line succeeds when it is run again, and the line goes on.
func TestRetriedLineGoesOn(t *testing.T) {
	t.Parallel()
	b := stopped(t)
	b.fail.Delete("first")
	b.says(t, "", "--json run first --queue default", cli.StatusOK, `"outcome":"retried","waiting":2,"by":"`+operator()+`"`)
	for range 3 {
		b.letOneSucceed(t)
	}
	expect.Eventually(t, "all have run", func() bool { return b.runs("third") == 1 })
	if want := []string{"first", "first", "second", "third"}; !b.ran(want...) {
		t.Errorf("want %v, have %v", want, b.order)
	}
}
