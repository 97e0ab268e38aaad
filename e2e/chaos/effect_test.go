package chaos_test

import (
	"cmp"
	"strings"
	"testing"
	"time"

	"github.com/sidingq/siding/e2e/chaos"
)

// A fault that hit nothing does not count as effective. The story has a on w1 from 2 to 3 s, and b on
// w2 from 4 to 5 s.
func TestEffective(t *testing.T) {
	t.Parallel()
	dies := func(h *chaos.History) {
		h.Runs[0].Returned, h.Runs[0].Outcome, h.Processes["w1"].Exited = 0, "", 2500*ms
	}
	stop := func(from, to time.Duration) func(*chaos.History) {
		return func(h *chaos.History) {
			h.Processes["w1"].Stops = []chaos.Stop{{From: from, To: to}}
		}
	}
	revoked := revoking(10, 2500*ms)
	missed := revoking(11, 2500*ms)
	for _, tc := range []struct {
		name   string
		fault  chaos.Fault
		change func(*chaos.History)
		want   int
	}{
		{name: "a worker is killed at work", fault: chaos.Fault{Kind: chaos.KillWorker, Process: "w1", Start: 2500 * ms}, change: dies, want: 1},
		{name: "an idle worker is killed", fault: chaos.Fault{Kind: chaos.KillWorker, Process: "w1", Start: 1 * s}, change: dies},
		{name: "a worker is stopped until its lock is gone", fault: chaos.Fault{Kind: chaos.StopWorker, Process: "w1", Start: 2500 * ms, End: 5 * s}, change: stop(2500*ms, 5000*ms), want: 1},
		{name: "a worker is stopped for too short a time", fault: chaos.Fault{Kind: chaos.StopWorker, Process: "w1", Start: 2500 * ms, End: 3 * s}, change: stop(2500*ms, 3000*ms)},
		{name: "another stop outlasted the lock", fault: chaos.Fault{Kind: chaos.StopWorker, Process: "w1", Start: 10 * s, End: 14 * s}, change: stop(2500*ms, 5000*ms)},
		{name: "an idle worker is stopped", fault: chaos.Fault{Kind: chaos.StopWorker, Process: "w1", Start: 3500 * ms, End: 6 * s}, change: stop(3500*ms, 6000*ms)},
		{name: "a worker is stopped at work", fault: chaos.Fault{Kind: chaos.HaltWorker, Process: "w1", Start: 2500 * ms, End: 3 * s}, change: stop(2500*ms, 2800*ms), want: 1},
		{name: "a worker is stopped after its work", fault: chaos.Fault{Kind: chaos.HaltWorker, Process: "w1", Start: 3100 * ms, End: 4 * s}, change: stop(3100*ms, 3400*ms)},
		{name: "the fleet is restarted", fault: chaos.Fault{Kind: chaos.RollingStart, Start: 59 * s, End: 61 * s}, want: 1},
		{name: "the fleet goes on", fault: chaos.Fault{Kind: chaos.RollingStart, Start: 10 * s, End: 20 * s}},

		{name: "Redis forgets a task", fault: chaos.Fault{Kind: chaos.RestartEmpty, Start: 10 * s, End: 11 * s, Forgot: map[string]bool{"x": true}}, want: 1},
		{name: "Redis forgets nothing", fault: chaos.Fault{Kind: chaos.RestartEmpty, Start: 10 * s, End: 11 * s}},
		{name: "no task begins while Redis hangs", fault: chaos.Fault{Kind: chaos.HangRedis, Start: 2100 * ms, End: 3900 * ms}, want: 1},
		{name: "a task begins while Redis hangs", fault: chaos.Fault{Kind: chaos.HangRedis, Start: 2500 * ms, End: 6 * s}},
		{name: "no task has begun before", fault: chaos.Fault{Kind: chaos.LosePackets, Start: 6 * s, End: 9 * s}},
		{name: "too short to say", fault: chaos.Fault{Kind: chaos.SwallowReplies, Start: 2100 * ms, End: 2500 * ms}},
		{name: "a master is replaced", fault: chaos.Fault{Kind: chaos.Failover, Start: 10 * s, End: 20 * s}, want: 1},

		{name: "tasks are deleted", fault: chaos.Fault{Kind: chaos.DeleteTasks, Start: 10 * s, Hits: 2}, want: 1},
		{name: "no tasks are deleted", fault: chaos.Fault{Kind: chaos.DeleteTasks, Start: 10 * s}},
		{name: "connections are cut", fault: chaos.Fault{Kind: chaos.CutConnections, Start: 10 * s, Hits: 2}, want: 1},
		{name: "no connections are cut", fault: chaos.Fault{Kind: chaos.CutConnections, Start: 10 * s}},

		{name: "a lease is revoked", fault: revoked, change: func(h *chaos.History) { h.Runs[0].Lost = 2900 * ms }, want: 1},
		{name: "a lease is revoked whose holder was done", fault: revoked},
		{name: "a lease is revoked that was lost before", fault: revoked, change: func(h *chaos.History) { h.Runs[0].Lost = 2400 * ms }},
		{name: "a lease is revoked before its handler began", fault: missed, change: func(h *chaos.History) { h.Runs[0].Lost = 2900 * ms }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			h := story()
			if tc.change != nil {
				tc.change(h)
			}
			h.Faults = []chaos.Fault{tc.fault}
			have := 0
			if account := chaos.Check(h).Excused[tc.fault.Kind]; account != nil {
				have = account.Effective
			}
			if have != tc.want {
				t.Errorf("want %d, have %d", tc.want, have)
			}
		})
	}
}

// A kind of fault that never did anything is a finding.
func TestNeverEffective(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name               string
		planned, came, hit int
		kind               chaos.Kind // DeleteLock if empty
		want               string
	}{
		{name: "most have none, without an effect", kind: chaos.RevokeLease, planned: 30, came: 30, want: "lease of a running task revoked: came 30 times, and never had an effect"},
		{name: "most have none, too few to say", kind: chaos.RevokeLease, planned: 29, came: 29},
		{name: "often, once with an effect", planned: 6, came: 5, hit: 1},
		{name: "often, without an effect", planned: 6, came: 5, want: "key of a held lock deleted: came 5 times, and never had an effect"},
		{name: "too few to say", planned: 6, came: 4},
		{name: "never", planned: 5, want: "key of a held lock deleted: planned 5 times, and never came"},
		{name: "never, as the run was short", planned: 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			h := story()
			kind := cmp.Or(tc.kind, chaos.DeleteLock)
			h.Planned = map[chaos.Kind]int{kind: tc.planned}
			for n := range tc.came {
				f := chaos.Fault{Kind: kind, Resource: "other", Start: 20 * s, End: 20 * s}
				if n < tc.hit {
					f.Hits = 1
				}
				h.Faults = append(h.Faults, f)
			}
			have := strings.Join(chaos.Check(h).Wrong, "\n")
			if have != tc.want {
				t.Errorf("want %q, have %q", tc.want, have)
			}
		})
	}
}
