package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/cli"
	"github.com/sidingq/siding/internal/config"
	"github.com/sidingq/siding/internal/testenv/expect"
)

// What people and scripts see is as in testdata, byte for byte.
func TestGolden(t *testing.T) {
	t.Parallel()
	waiters := []inspect.Waiter{
		{Position: 1, Task: &inspect.Task{Queue: "default", ID: "77ab11"}, Since: now.Add(-4187 * time.Millisecond), Waited: inspect.Duration(4187 * time.Millisecond)},
		{Position: 2, Name: "siding-goroutine:0b7:1", Since: now.Add(-3 * time.Second), Waited: inspect.Duration(3 * time.Second)},
		{Position: 3, Task: &inspect.Task{Queue: "low", ID: "77\nab12"}, Since: now.Add(-2 * time.Second), Waited: inspect.Duration(2 * time.Second), Paused: true},
	}
	revoked := locks[0]
	revoked.Revoked = &inspect.Revocation{At: now.Add(-time.Hour), By: "alice@ops-1", Reason: "it hung in a call to the bank", Holder: "order:audit 11 on web-1 (pid 7)"}
	stopping := locks[0]
	stopping.State, stopping.Revoked = inspect.Revoked, &inspect.Revocation{At: now.Add(-time.Second), By: "alice@ops-1", Reason: "it hangs", Holder: stopping.Holder}
	shared := locks[0]
	shared.Holder, shared.Task, shared.Worker, shared.Since, shared.Gone = "2 holders", nil, nil, time.Time{}, true
	shared.Limit = &inspect.Limit{Pattern: "order:*", Holders: 3, By: "alice@ops-1", Reason: "stock count", At: now.Add(-time.Hour)}
	shared.Permits = []inspect.Permit{
		{State: inspect.Held, Holder: locks[0].Holder, Task: locks[0].Task, Worker: locks[0].Worker, Since: locks[0].Since, Left: locks[0].Left, Fence: locks[0].Fence},
		{State: inspect.Revoked, Holder: "order:audit 11 on web-1 (pid 7)", Gone: true, Since: now.Add(-time.Minute), Left: inspect.Duration(time.Second), Fence: 1772366340000000},
		{State: inspect.Reserved, Holder: "siding-task:default:77ab11", Task: &inspect.Task{Queue: "default", ID: "77ab11"}, Since: now.Add(-time.Second), Left: inspect.Duration(4 * time.Second)},
	}
	paused := inspect.Lock{
		Resource: "account:42", State: inspect.Free, Waiting: 1, OldestWait: inspect.Duration(time.Minute),
		Limit: &inspect.Limit{Pattern: "account:*", By: "bob", Reason: "the bank is down", At: now.Add(-time.Hour)},
	}
	elsewhere := locks[2]
	elsewhere.Elsewhere = true
	held := inspect.Lock{Resource: "order:1", State: inspect.Free, Lines: []inspect.HeldLine{
		{Task: inspect.Task{Queue: "default", ID: "77ab11"}, Stopped: true, Since: now.Add(-time.Minute), Error: "no such order", Waiting: 1},
		{Task: inspect.Task{Queue: "low", ID: "77ab12"}, GoesOn: now.Add(time.Second), Error: "the database is away", Waiting: 1},
	}}
	lists := &fake{list: inspect.List{Locks: locks, LeftOut: 7}, scanned: locks[3:]}
	show := &fake{lock: revoked, waiters: waiters}
	for name, c := range map[string]struct {
		fake   *fake
		args   []string
		status int
	}{
		"list.txt":         {lists, []string{"list"}, 0},
		"list.json":        {lists, []string{"list", "--json", "--sort", "since"}, 0},
		"list-revoked.txt": {&fake{list: inspect.List{Locks: []inspect.Lock{stopping}}}, []string{"list"}, 0},
		"list-none.txt":    {lists, []string{"list", "--filter", "nothing"}, 0},
		"list-none.json":   {&fake{}, []string{"list", "--json"}, 0},
		"list-all.txt":     {lists, []string{"list", "--all"}, 0},
		"show.txt":         {show, []string{"show", "order:536365"}, 0},
		"show-more.txt":    {&fake{lock: locks[0], waiters: waiters[:1]}, []string{"show", "order:536365", "--count", "1"}, 0},
		"show-beyond.txt":  {&fake{lock: locks[0]}, []string{"show", "order:536365", "--from", "10"}, 0},
		"show.json":        {show, []string{"show", "order:536365", "--json"}, 0},
		"show-free.txt":    {&fake{lock: inspect.Lock{Resource: "order:1", State: inspect.Free}}, []string{"show", "order:1"}, 0},
		"show-free.json":   {&fake{lock: inspect.Lock{Resource: "order:1", State: inspect.Free}}, []string{"show", "order:1", "--json"}, 0},
		"show-foreign.txt": {&fake{lock: locks[3]}, []string{"show", "x"}, 0},
		"show-stops.txt":   {&fake{lock: stopping}, []string{"show", "order:536365"}, 0},
		"show-held.txt":    {&fake{lock: held}, []string{"show", "order:1"}, 0},
		"list-shared.txt":  {&fake{list: inspect.List{Locks: []inspect.Lock{shared}}}, []string{"list"}, 0},
		"show-shared.txt":  {&fake{lock: shared, waiters: waiters[:1]}, []string{"show", "order:536365"}, 0},
		"show-shared.json": {&fake{lock: shared}, []string{"show", "order:536365", "--json"}, 0},
		"show-paused.txt":  {&fake{lock: paused}, []string{"show", "account:42"}, 0},
		"show-extern.txt":  {&fake{lock: elsewhere}, []string{"show", "sku:85123A"}, 0},
		"why.txt":          {&fake{why: waitingTask()}, []string{"why", "77ab11"}, exitTrouble},
		"why.json":         {&fake{why: waitingTask()}, []string{"why", "77ab11", "--json"}, exitTrouble},
		"why-running.txt":  {&fake{why: runningTask()}, []string{"why", "77ab09"}, 0},
		"why-pending.txt":  {&fake{why: pendingTask()}, []string{"why", "77ab13"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, out, errs := fakeApp(c.fake)
			expect.Equal(t, "status", a.run(t.Context(), c.args), c.status)
			golden(t, name, errs.String()+out.String())
			if slices.Contains(c.args, "--json") && (!json.Valid(out.Bytes()) || strings.Count(out.String(), "\n") != 1) {
				t.Errorf("want one line of JSON, have %q", out)
			}
		})
	}
}

// waitingTask waits behind a holder whose worker is gone.
func waitingTask() inspect.Explanation {
	held := locks[0]
	held.Gone = true
	return inspect.Explanation{
		Task: inspect.Task{Queue: "default", ID: "77ab11", Kind: "order:audit"}, State: inspect.StateWaiting, AlsoIn: []string{"low"},
		Resource: "order:536365", Lock: &held, Position: 1, Since: now.Add(-4 * time.Second), Waited: inspect.Duration(4 * time.Second),
		Next: now.Add(time.Hour), Servers: 2, Retried: 1, Retries: 25, Parks: 2, Crashes: 1, Tolerated: 3, Losses: 1,
		LastError: "waiting for order:536365", Failure: "no such order", FailedAt: now.Add(-time.Minute), Deadline: now.Add(time.Hour),
		Verdict: inspect.Verdict{
			Trouble: true, Wrong: "Yes: the worker of the holder is dead.", Clears: "The lock expires.", Do: "Wait: `lockctl show order:536365`.",
		},
	}
}

func runningTask() inspect.Explanation {
	return inspect.Explanation{
		Task: inspect.Task{Queue: "default", ID: "77ab09", Kind: "warehouse:allocate"}, State: inspect.StateRunning, Resource: "order:536365", Lock: &locks[0],
		Worker: &inspect.Worker{Host: "web-3", PID: 4121}, Started: now.Add(-12 * time.Second), LeaseEnds: now.Add(30 * time.Second), Servers: 1, Retries: 25, Tolerated: 3,
		Verdict: inspect.Verdict{Wrong: "No: the task runs.", Clears: "It ends when its handler returns.", Do: "Wait."},
	}
}

func pendingTask() inspect.Explanation {
	return inspect.Explanation{
		Task: inspect.Task{Queue: "default", ID: "77ab13"}, State: inspect.StatePending, PendingMore: 1000, Paused: true, Retries: 25, Priority: 3, Policy: `{"max_wait":"1m0s"}`,
		Verdict: inspect.Verdict{Wrong: "No.", Clears: "Soon.", Do: "Wait."},
	}
}

func TestFilter(t *testing.T) {
	t.Parallel()
	for filter, want := range map[string][]string{
		"": {"order:1", "顧客:佐藤"}, "5": nil, "客": {"顧客:佐藤"}, "ORDER": nil, "order:*": {"order:1"}, "客*": nil, "*": {"order:1", "顧客:佐藤"},
	} {
		have := slices.DeleteFunc([]string{"order:1", "顧客:佐藤"}, func(name string) bool { return !matches(name, filter) })
		expect.That(t, slices.Equal(have, want), "%q: want %q, have %q", filter, want, have)
	}
}

// A name that is too long does not widen the lines of the others.
func TestLongName(t *testing.T) {
	t.Parallel()
	long := locks[0]
	long.Resource = strings.Repeat("x", 500)
	a, out, _ := fakeApp(&fake{list: inspect.List{Locks: append([]inspect.Lock{long}, locks...)}})
	if status := a.run(t.Context(), []string{"list"}); status != cli.StatusOK || !strings.Contains(out.String(), long.Resource+"  held ") {
		t.Errorf("want the whole name, have status %d and\n%s", status, out)
	}
	for line := range strings.Lines(out.String()) {
		if !strings.HasPrefix(line, long.Resource) && len(line) > 200 || strings.HasSuffix(line, " \n") {
			t.Errorf("want a line as long as its own cells, have %q", line)
		}
	}
}

// A closed is a pipe whose reader has gone.
type closed struct{}

func (closed) Write([]byte) (int, error) {
	return 0, &os.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.EPIPE}
}

// A reader that has seen enough is no fault.
func TestReaderGone(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"list"}, {"list", "--json"}, {"show", "order:1"}, {"why", "77ab11"}} {
		a, _, errs := fakeApp(&fake{list: inspect.List{Locks: locks}, why: waitingTask()})
		a.stdout = closed{}
		if status := a.run(t.Context(), args); status != cli.StatusOK || errs.Len() > 0 {
			t.Errorf("%q: want a silent end, have status %d and %q", args, status, errs)
		}
	}
}

// People see local times, in sentences too. Scripts see UTC.
func TestZones(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{{[]string{"why", "77ab11"}, "CET"}, {[]string{"why", "77ab11", "--json"}, "UTC"}} {
		a, _, _ := fakeApp(&fake{why: waitingTask()})
		open, have := a.open, ""
		a.open = func(ctx context.Context, settings config.Config, zone *time.Location) (*connection, error) {
			have = zone.String()
			return open(ctx, settings, zone)
		}
		if a.run(t.Context(), c.args); have != c.want {
			t.Errorf("%q: want the zone %s, have %s", c.args, c.want, have)
		}
	}
}

func TestPlain(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"order:1 / ü 佐藤":            "order:1 / ü 佐藤",
		"a\x1b]0;x\x07\tb\r\nc":     `a\x1b]0;x\a\tb\r\nc`,
		"\xff\xfe":                  `\xff\xfe`,
		"right\u202eleft\u200bnone": `right\u202eleft\u200bnone`,
		"\u0085\u009b31m":           `\u0085\u009b31m`,
		`back\slash`:                `back\slash`,
		"\"\\x41\" \n\ufffd":        "\"\\x41\" \\n\ufffd",
	} {
		expect.Equal(t, fmt.Sprintf("%q", text), cli.Plain(text), want)
	}
}
