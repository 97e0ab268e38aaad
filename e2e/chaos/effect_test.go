package chaos

import (
	"cmp"
	"strings"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
)

// A fault that hit nothing does not count as effective. The story has a on w1 from 2 to 3 s, and b on
// w2 from 4 to 5 s.
func TestEffective(t *testing.T) {
	t.Parallel()
	dies := func(h *History) { h.Runs[0].Returned, h.Runs[0].Outcome, h.Processes["w1"].Exited = 0, "", 2500*ms }
	lost := func(at time.Duration) change { return func(h *History) { h.Runs[0].Lost = at } }
	of := func(k Kind, start, end time.Duration) Fault {
		return Fault{Kind: k, Process: "w1", Start: start, End: end}
	}
	all := func(k Kind, start, end time.Duration) Fault { return Fault{Kind: k, Start: start, End: end} }
	hits := func(k Kind, n int) Fault { return Fault{Kind: k, Start: 10 * s, Hits: n} }
	revoked, missed := revoking(10, 2500*ms), revoking(11, 2500*ms)
	for _, tc := range []struct {
		name   string
		want   int
		fault  Fault
		change change
	}{
		{"a worker is killed at work", 1, of(KillWorker, 2500*ms, 0), dies},
		{"an idle worker is killed", 0, of(KillWorker, 1*s, 0), dies},
		{"a worker is stopped until its lock is gone", 1, of(StopWorker, 2500*ms, 5*s), stop("w1", 2500*ms, 5*s)},
		{"a worker is stopped for too short a time", 0, of(StopWorker, 2500*ms, 3*s), stop("w1", 2500*ms, 3*s)},
		{"another stop outlasted the lock", 0, of(StopWorker, 10*s, 14*s), stop("w1", 2500*ms, 5*s)},
		{"an idle worker is stopped", 0, of(StopWorker, 3500*ms, 6*s), stop("w1", 3500*ms, 6*s)},
		{"a worker is stopped at work", 1, of(HaltWorker, 2500*ms, 3*s), stop("w1", 2500*ms, 2800*ms)},
		{"a worker is stopped after its work", 0, of(HaltWorker, 3100*ms, 4*s), stop("w1", 3100*ms, 3400*ms)},
		{"the fleet is restarted", 1, all(RollingStart, 59*s, 61*s), nil},
		{"the fleet goes on", 0, all(RollingStart, 10*s, 20*s), nil},

		{"Redis forgets a task", 1, Fault{Kind: RestartEmpty, Start: 10 * s, End: 11 * s, Forgot: map[string]bool{"x": true}}, nil},
		{"Redis forgets nothing", 0, all(RestartEmpty, 10*s, 11*s), nil},
		{"no task begins while Redis hangs", 1, all(HangRedis, 2100*ms, 3900*ms), nil},
		{"a task begins while Redis hangs", 0, all(HangRedis, 2500*ms, 6*s), nil},
		{"no task has begun before", 0, all(LosePackets, 6*s, 9*s), nil},
		{"too short to say", 0, all(SwallowReplies, 2100*ms, 2500*ms), nil},
		{"a master is replaced", 1, all(Failover, 10*s, 20*s), nil},

		{"tasks are deleted", 1, hits(DeleteTasks, 2), nil},
		{"no tasks are deleted", 0, hits(DeleteTasks, 0), nil},
		{"connections are cut", 1, hits(CutConnections, 2), nil},
		{"no connections are cut", 0, hits(CutConnections, 0), nil},

		{"a lease is revoked", 1, revoked, lost(2900 * ms)},
		{"a lease is revoked whose holder was done", 0, revoked, nil},
		{"a lease is revoked that was lost before", 0, revoked, lost(2400 * ms)},
		{"a lease is revoked before its handler began", 0, missed, lost(2900 * ms)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			h := story()
			if tc.change != nil {
				tc.change(h)
			}
			h.Faults = []Fault{tc.fault}
			have := 0
			if account := Check(h).Excused[tc.fault.Kind]; account != nil {
				have = account.Effective
			}
			expect.That(t, have == tc.want, "want %d, have %d", tc.want, have)
		})
	}
}

// A kind of fault that never did anything is a finding.
func TestNeverEffective(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name               string
		planned, came, hit int
		kind               Kind // DeleteLock if empty
		want               string
	}{
		{name: "most have none, without an effect", kind: RevokeLease, planned: 30, came: 30, want: "lease of a running task revoked: came 30 times, and never had an effect"},
		{name: "most have none, too few to say", kind: RevokeLease, planned: 29, came: 29},
		{name: "often, once with an effect", planned: 6, came: 5, hit: 1},
		{name: "often, without an effect", planned: 6, came: 5, want: "key of a held lock deleted: came 5 times, and never had an effect"},
		{name: "too few to say", planned: 6, came: 4},
		{name: "never", planned: 5, want: "key of a held lock deleted: planned 5 times, and never came"},
		{name: "never, as the run was short", planned: 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			h := story()
			kind := cmp.Or(tc.kind, DeleteLock)
			h.Planned = map[Kind]int{kind: tc.planned}
			for n := range tc.came {
				f := Fault{Kind: kind, Resource: "other", Start: 20 * s, End: 20 * s}
				if n < tc.hit {
					f.Hits = 1
				}
				h.Faults = append(h.Faults, f)
			}
			have := strings.Join(Check(h).Wrong, "\n")
			expect.That(t, have == tc.want, "want %q, have %q", tc.want, have)
		})
	}
}
