package inspect_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/testenv/expect"
)

var update = flag.Bool("update", false, "write the golden files")

// The names in JSON are those that programs read: they stay.
func TestJSON(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Date(2026, 11, 23, 18, 0, s, 123456000, time.UTC) }
	task := inspect.Task{Queue: "orders", ID: "t-1", Kind: "order:audit"}
	other := inspect.Task{Queue: "orders", ID: "t-0", Kind: "order:audit"}
	worker := inspect.Worker{Host: "a1", PID: 7}
	held := inspect.Lock{
		Resource: "order:536365", State: inspect.Revoked, Holder: "t-0 on a1 (pid 7)", Task: &other, Worker: &worker, Gone: true, Since: at(0),
		Left: inspect.Duration(4187 * time.Millisecond), Fence: 1763921000000000, Waiting: 3, Paused: 1, OldestWait: inspect.Duration(90 * time.Second), Elsewhere: true,
		Revoked: &inspect.Revocation{At: at(1), By: "ann", Reason: "stuck", Holder: "t-9 on a2 (pid 8)"},
		Permits: []inspect.Permit{{
			State: inspect.Held, Holder: "t-0 on a1 (pid 7)", Task: &other, Worker: &worker, Gone: true, Since: at(0), Left: inspect.Duration(time.Second), Fence: 7,
		}, {State: inspect.Reserved, Holder: "siding-goroutine:5f2c:1"}},
		Limit: &inspect.Limit{Pattern: "order:*", Holders: 3, Rates: []inspect.Rate{{Starts: 100, Period: inspect.Duration(time.Minute)}}, By: "ann", Reason: "stock count", At: at(1)},
		Lines: []inspect.HeldLine{{Resource: "order:536365", Task: other, GoesOn: at(9), Since: at(1), Error: "boom", Waiting: 2}},
		Rated: true, Ready: at(2), Unserved: inspect.Duration(5 * time.Second),
	}
	for name, value := range map[string]any{
		"lock":      held,
		"lock-free": inspect.Lock{Resource: "order:1", State: inspect.Free},
		"list":      inspect.List{Locks: []inspect.Lock{{Resource: "order:1", State: inspect.Foreign, Holder: "another program", Endless: true}}, LeftOut: 2},
		"waiter":    inspect.Waiter{Position: 1, Task: &task, Since: at(2), Waited: inspect.Duration(time.Second), Paused: true},
		"explanation": inspect.Explanation{
			Task: task, State: inspect.StateWaiting, AlsoIn: []string{"b"}, Resource: "order:536365", Lock: &held, Position: 2, Since: at(3),
			Waited: inspect.Duration(time.Minute), Priority: 3, Policy: `{"max_wait":"1m0s"}`, Pending: 4, PendingMore: 1000, Next: at(4), Worker: &worker, Started: at(5), LeaseEnds: at(6), Paused: true,
			Servers: 2, Retried: 1, Retries: 25, Parks: 3, Crashes: 1, Tolerated: 3, Losses: 2, LastError: "waits for order:536365", Failure: "boom",
			FailedAt: at(7), Deadline: at(8),
			Verdict: inspect.Verdict{Trouble: true, Wrong: "Yes.", Clears: "Soon.", Do: "Wait."},
		},
		"explanation-least": inspect.Explanation{Task: task, State: inspect.StatePending},
		"orphan":            inspect.Orphan{Task: task, Resource: "order:1", Orphaned: true, Crashes: 1, Tolerated: 3, LeaseEnds: at(9), UsesRetry: true},
		"held-line":         inspect.HeldLine{Resource: "order:1", Task: task, GoesOn: at(4), Since: at(3), Error: "boom", Waiting: 2},
		"server":            inspect.Server{Worker: worker, ID: "s", Queues: []string{"orders"}, Unguarded: []string{"orders"}},
		"queue": inspect.Queue{
			Name: "orders", Paused: true, Pending: 1, Active: 2, Scheduled: 3, Aggregating: 4, Waiting: 5, Retrying: 6, Estimated: true, Archived: 7, Completed: 8,
			Contended: 9, Held: 2, Stopped: 1, Servers: 10,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			have := expect.Value(json.MarshalIndent(value, "", "  "))(t)
			file := filepath.Join("testdata", name+".json")
			if *update {
				expect.OK(t, os.WriteFile(file, append(have, '\n'), 0o600))
			}
			want := expect.Value(os.ReadFile(file))(t)
			expect.Same(t, file, string(have)+"\n", string(want))
		})
	}
}

// Seconds have no digits after the milliseconds: 4 s and 472 ms are 4.472, not 4.4719999999999995.
func TestDuration(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0:                         "0",
		4472 * time.Millisecond:   "4.472",
		4471600 * time.Nanosecond: "0.004",
		-1500 * time.Millisecond:  "-1.5",
		72 * time.Hour:            "259200",
	} {
		have := expect.Value(json.Marshal(inspect.Duration(d)))(t)
		expect.That(t, string(have) == want, "%v: want %s, have %s", d, want, have)
		var again inspect.Duration
		if expect.OK(t, json.Unmarshal(have, &again)); (time.Duration(again) - d).Abs() > time.Millisecond {
			t.Errorf("want %v again, have %v", d, again)
		}
	}
	for d, want := range map[time.Duration]string{
		-time.Second:            "0.0 s",
		0:                       "0.0 s",
		4187 * time.Millisecond: "4.2 s",
		9960 * time.Millisecond: "10 s",
		119 * time.Second:       "119 s",
		185 * time.Second:       "3 min",
		119 * time.Minute:       "119 min",
		5 * time.Hour:           "5 h",
		80 * time.Hour:          "3 d",
	} {
		expect.Equal(t, d.String(), inspect.Duration(d).String(), want)
	}
	err := json.Unmarshal([]byte(`"4s"`), new(inspect.Duration))
	expect.That(t, err != nil, "want an error of a text")
}
