package chaos_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidingq/siding/e2e/chaos"
	"github.com/sidingq/siding/queue"
)

const (
	s  = time.Second
	ms = time.Millisecond
)

// story is a history in which nothing goes wrong: a and b on one thing, by two
// workers.
func story() *chaos.History {
	return &chaos.History{
		Tasks: map[string]*chaos.Task{
			"a": {ID: "a", Resource: "thing", Fate: chaos.FateOK, Accepted: 1 * s},
			"b": {ID: "b", Resource: "thing", Fate: chaos.FateOK, Accepted: 1 * s},
		},
		Runs: []chaos.Run{
			{Task: "a", Process: "w1", Resource: "thing", Fence: 10, Begin: 2 * s, Returned: 3 * s, Outcome: chaos.Done},
			{Task: "b", Process: "w2", Resource: "thing", Fence: 20, Begin: 4 * s, Returned: 5 * s, Outcome: chaos.Done},
		},
		Effects: []chaos.Effect{{Task: "a", Resource: "thing", Fence: 10}, {Task: "b", Resource: "thing", Fence: 20}},
		Processes: map[string]*chaos.Process{
			"w1": {Name: "w1", Exited: 60 * s},
			"w2": {Name: "w2", Exited: 60 * s},
		},
		Archived: map[string]string{},
	}
}

// us is a microsecond.
const us = time.Microsecond

// inPool returns runs that begin so, and last for 5 ms.
func inPool(begin ...time.Duration) []chaos.Run {
	runs := make([]chaos.Run, len(begin))
	for i, at := range begin {
		runs[i] = chaos.Run{Task: "p", Process: "w1", Resource: "pool:0", Fence: int64(at/us) + int64(i), Begin: at, Returned: at + 5*ms, Outcome: chaos.Ended}
	}
	return runs
}

// override returns a pause of the thing.
func override(since, until time.Duration) chaos.Fault {
	return chaos.Fault{Kind: chaos.OverrideLimit, Resource: "thing", Start: since, End: until, Hits: 1, Override: &chaos.Override{Since: since, Until: until}}
}

// TestThrottled wants a rate counted that kept a task away, and none that only had enough starts.
func TestThrottled(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		every        time.Duration
		starts, want int
	}{{125 * ms, 12, 1}, {170 * ms, 40, 1}, {200 * ms, 40, 0}} {
		h := story()
		for i := range tt.starts {
			h.Runs = append(h.Runs, inPool(9*s + time.Duration(i)*tt.every)[0])
		}
		if v := chaos.Check(h); v.Throttled != tt.want || len(v.Wrong) > 0 {
			t.Errorf("%d starts, one every %v: want %d, have %d, and %q", tt.starts, tt.every, tt.want, v.Throttled, v.Wrong)
		}
	}
}

// TestCheckFinds changes the story in one way and wants that found, and nothing else.
func TestCheckFinds(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		change func(*chaos.History)
		want   string // part of the one finding; empty for none
	}{
		{name: "nothing", change: func(*chaos.History) {}},
		{name: "one more holder than the limit", want: "4 hold pool:0 at 9s, which has a limit of 3", change: func(h *chaos.History) {
			h.Runs = append(h.Runs, inPool(9*s, 9*s, 9*s, 9*s)...)
		}},
		{name: "two who need one resource in common", want: "two hold part:1 from 2.5s to 2.6s: a on w1 (fence 10) and c on w2 (fence 30)", change: func(h *chaos.History) {
			h.Tasks["c"] = &chaos.Task{ID: "c", Resource: queue.AllOf("part:1", "part:2"), Fate: chaos.FateOK, Accepted: s}
			h.Tasks["a"].Resource, h.Runs[0].Resource, h.Effects[0].Resource = queue.AllOf("part:0", "part:1"), queue.AllOf("part:0", "part:1"), ""
			h.Runs = append(h.Runs, chaos.Run{Task: "c", Process: "w2", Resource: queue.AllOf("part:1", "part:2"), Fence: 30, Begin: 2500 * ms, Returned: 2600 * ms, Outcome: chaos.Done})
			h.Effects = append(h.Effects, chaos.Effect{Task: "c"})
		}},
		{name: "two who need nothing in common", change: func(h *chaos.History) {
			h.Tasks["c"] = &chaos.Task{ID: "c", Resource: queue.AllOf("part:2", "part:3"), Fate: chaos.FateOK, Accepted: s}
			h.Tasks["a"].Resource, h.Runs[0].Resource, h.Effects[0].Resource = queue.AllOf("part:0", "part:1"), queue.AllOf("part:0", "part:1"), ""
			h.Runs = append(h.Runs, chaos.Run{Task: "c", Process: "w2", Resource: queue.AllOf("part:2", "part:3"), Fence: 30, Begin: 2500 * ms, Returned: 2600 * ms, Outcome: chaos.Done})
			h.Effects = append(h.Effects, chaos.Effect{Task: "c"})
		}},
		{name: "a start while the resource is paused", want: "task b started on thing at 4s as holder 1, and an operator allowed 0 from 1.5s to 5s", change: func(h *chaos.History) {
			h.Faults = []chaos.Fault{override(1500*ms, 5*s)}
		}},
		{name: "a start before all servers know of the pause", change: func(h *chaos.History) {
			h.Faults = []chaos.Fault{override(2500*ms, 5*s)}
		}},
		{name: "a start after the end of the pause", change: func(h *chaos.History) {
			h.Faults = []chaos.Fault{override(s, 3500*ms)}
		}},
		{name: "a start while the resource is paused, after a stop of a worker", change: func(h *chaos.History) {
			h.Faults = []chaos.Fault{override(1500*ms, 5*s)}
			h.Processes["w1"].Stops = []chaos.Stop{{From: s, To: 3500 * ms}}
		}},
		{name: "a start while the resource is paused, after a worker was stopped that knew of it", want: "task b started on thing at 4s", change: func(h *chaos.History) {
			h.Faults = []chaos.Fault{override(1500*ms, 5*s)}
			h.Processes["w1"].Stops = []chaos.Stop{{From: 3600 * ms, To: 3900 * ms}}
		}},
		{name: "a start while the resource is paused, after Redis stood still", change: func(h *chaos.History) {
			h.Faults = []chaos.Fault{override(1500*ms, 5*s), {Kind: chaos.HangRedis, Start: 2 * s, End: 3 * s}}
		}},
		{name: "a start while the resource is paused, after a failover just then", change: func(h *chaos.History) {
			h.Faults = []chaos.Fault{override(1500*ms, 5*s), {Kind: chaos.Failover, Start: 2 * s, End: 2500 * ms}}
		}},
		{name: "a start while the resource is paused, after a failover that comes later", want: "task b started on thing at 4s", change: func(h *chaos.History) {
			h.Faults = []chaos.Fault{override(500*ms, 5*s), {Kind: chaos.Failover, Start: 2600 * ms, End: 3 * s}}
		}},
		{name: "a start while the resource is paused, after Redis lost all", change: func(h *chaos.History) {
			h.Faults = []chaos.Fault{override(500*ms, 5*s), {Kind: chaos.RestartEmpty, Start: 2600 * ms, End: 3 * s}}
		}},
		{name: "one more holder than an operator allows", want: "task p started on pool:0 at 9s as holder 3, and an operator allowed 2", change: func(h *chaos.History) {
			h.Runs = append(h.Runs, inPool(9*s, 9*s, 9*s)...)
			h.Faults = []chaos.Fault{{Kind: chaos.OverrideLimit, Resource: "pool:0", Hits: 1, Override: &chaos.Override{Holders: 2, Since: 6 * s, Until: 10 * s}}}
		}},
		{name: "as many holders as an operator allows", change: func(h *chaos.History) {
			h.Runs = append(h.Runs, inPool(9*s, 9*s)...)
			h.Faults = []chaos.Fault{{Kind: chaos.OverrideLimit, Resource: "pool:0", Hits: 1, Override: &chaos.Override{Holders: 2, Since: 6 * s, Until: 10 * s}}}
		}},
		{name: "as many holders as the limit", change: func(h *chaos.History) {
			h.Runs = append(h.Runs, inPool(9*s, 9*s, 9*s)...)
		}},
		{name: "one more holder, of whose permit Redis lost the data", change: func(h *chaos.History) {
			h.Runs = append(h.Runs, inPool(9*s, 9*s, 9*s, 9*s)...)
			h.Faults = []chaos.Fault{{Kind: chaos.Failover, Start: 8 * s, End: 9 * s}}
		}},
		{name: "more starts than the rate", want: "pool:0 had 5 starts in 200ms, and at most 4 are allowed in 500ms", change: func(h *chaos.History) {
			for i := range 5 {
				h.Runs = append(h.Runs, inPool(9*s + time.Duration(i)*50*ms)[0])
			}
		}},
		{name: "as many starts as the rate", change: func(h *chaos.History) {
			for i := range 40 {
				h.Runs = append(h.Runs, inPool(9*s + time.Duration(i)*170*ms)[0])
			}
		}},
		{name: "more starts than the rate, as Redis lost its data", change: func(h *chaos.History) {
			for i := range 5 {
				h.Runs = append(h.Runs, inPool(9*s + time.Duration(i)*50*ms)[0])
			}
			h.Faults = []chaos.Fault{{Kind: chaos.RestartEmpty, Start: 9100 * ms, End: 9100 * ms}}
		}},
		{name: "a task without an effect", want: "task c (ok, on \"thing\") is lost", change: func(h *chaos.History) {
			h.Tasks["c"] = &chaos.Task{ID: "c", Resource: "thing", Fate: chaos.FateOK, Accepted: s}
		}},
		{name: "a task whose enqueue was not answered", change: func(h *chaos.History) {
			h.Tasks["c"] = &chaos.Task{ID: "c", Resource: "thing", Fate: chaos.FateOK, Unknown: true}
		}},
		{name: "a task that an operator deleted", change: func(h *chaos.History) {
			h.Tasks["c"] = &chaos.Task{ID: "c", Resource: "thing", Fate: chaos.FateOK, Deleted: true}
		}},
		{name: "a task that an operator archived", change: func(h *chaos.History) {
			h.Tasks["c"] = &chaos.Task{ID: "c", Resource: "thing", Fate: chaos.FateOK, Shelved: true}
			h.Archived["c"] = ""
		}},
		{name: "a task that an operator archived, and ran again, and is gone", want: "task c", change: func(h *chaos.History) {
			h.Tasks["c"] = &chaos.Task{ID: "c", Resource: "thing", Fate: chaos.FateOK, Shelved: true}
		}},
		{name: "a task archived because it waited", want: "task c", change: func(h *chaos.History) {
			h.Tasks["c"] = &chaos.Task{ID: "c", Resource: "thing", Fate: chaos.FateOnce}
			h.Archived["c"] = "waiting for thing"
		}},
		{name: "a task archived for its own failure", change: func(h *chaos.History) {
			h.Tasks["c"] = &chaos.Task{ID: "c", Resource: "thing", Fate: chaos.FatePermanent}
			h.Archived["c"] = chaos.ErrOwn + ": skip retry for the task"
		}},
		{name: "a task with retries archived for its own failure", want: "task c", change: func(h *chaos.History) {
			h.Tasks["c"] = &chaos.Task{ID: "c", Resource: "thing", Fate: chaos.FateFlaky}
			h.Archived["c"] = chaos.ErrOwn
		}},
		{name: "a task without retries whose worker died in it", change: func(h *chaos.History) {
			h.Tasks["c"] = &chaos.Task{ID: "c", Resource: "thing", Fate: chaos.FateOnce}
			h.Archived["c"] = "asynq: task lease expired"
			h.Runs = append(h.Runs, chaos.Run{Task: "c", Process: "w1", Resource: "thing", Fence: 30, Begin: 59 * s})
		}},
		{name: "a task without retries whose worker died when it was about to begin", change: func(h *chaos.History) {
			h.Tasks["c"] = &chaos.Task{ID: "c", Resource: "thing", Fate: chaos.FateOnce}
			h.Archived["c"] = "asynq: task lease expired"
			h.Started = map[string]bool{"c": true}
		}},
		{name: "a task without retries archived before it began", want: "task c", change: func(h *chaos.History) {
			h.Tasks["c"] = &chaos.Task{ID: "c", Resource: "thing", Fate: chaos.FateOnce}
			h.Archived["c"] = "asynq: task lease expired"
		}},
		{name: "a task that Redis forgot when it was restarted empty", change: func(h *chaos.History) {
			h.Tasks["c"] = &chaos.Task{ID: "c", Resource: "thing", Fate: chaos.FateOK, Accepted: 6 * s}
			h.Faults = []chaos.Fault{{Kind: chaos.RestartEmpty, Start: 7 * s, End: 8 * s, Forgot: map[string]bool{"c": true}}}
		}},
		{name: "a task that was lost before Redis was restarted empty", want: "task c", change: func(h *chaos.History) {
			h.Tasks["c"] = &chaos.Task{ID: "c", Resource: "thing", Fate: chaos.FateOK, Accepted: 6 * s}
			h.Faults = []chaos.Fault{{Kind: chaos.RestartEmpty, Start: 7 * s, End: 8 * s, Forgot: map[string]bool{"d": true}}}
		}},
		{name: "a task that was accepted after Redis was restarted empty", want: "task c", change: func(h *chaos.History) {
			h.Tasks["c"] = &chaos.Task{ID: "c", Resource: "thing", Fate: chaos.FateOK, Accepted: 9 * s}
			h.Faults = []chaos.Fault{{Kind: chaos.RestartEmpty, Start: 7 * s, End: 8 * s}}
		}},
		{name: "a task accepted when the master died", change: func(h *chaos.History) {
			h.Tasks["c"] = &chaos.Task{ID: "c", Resource: "thing", Fate: chaos.FateOK, Accepted: 6900 * ms}
			h.Faults = []chaos.Fault{{Kind: chaos.Failover, Start: 7 * s, End: 8 * s}}
		}},
		{name: "a task taken out of the archive when the master died", change: func(h *chaos.History) {
			h.Tasks["c"] = &chaos.Task{ID: "c", Resource: "thing", Fate: chaos.FateOK, Accepted: 2 * s, RunAgain: 7100 * ms}
			h.Archived["c"] = "waiting for thing"
			h.Faults = []chaos.Fault{{Kind: chaos.Failover, Start: 7 * s, End: 8 * s}}
		}},
		{name: "a task taken out of the archive when the master died, and lost", want: "task c", change: func(h *chaos.History) {
			h.Tasks["c"] = &chaos.Task{ID: "c", Resource: "thing", Fate: chaos.FateOK, Accepted: 2 * s, RunAgain: 7100 * ms}
			h.Faults = []chaos.Fault{{Kind: chaos.Failover, Start: 7 * s, End: 8 * s}}
		}},
		{name: "a task accepted long before the master died", want: "task c", change: func(h *chaos.History) {
			h.Tasks["c"] = &chaos.Task{ID: "c", Resource: "thing", Fate: chaos.FateOK, Accepted: 2 * s}
			h.Faults = []chaos.Fault{{Kind: chaos.Failover, Start: 7 * s, End: 8 * s}}
		}},
		{name: "a task refused by the ledger after a failover forgot its lock", want: "task c", change: func(h *chaos.History) {
			h.Tasks["c"] = &chaos.Task{ID: "c", Resource: "thing", Fate: chaos.FateOnce, Accepted: 2 * s}
			h.Archived["c"] = "has seen fence 31, refused the older 30"
			h.Runs = append(h.Runs, chaos.Run{Task: "c", Process: "w1", Resource: "thing", Fence: 30, Begin: 6500 * ms, Returned: 7500 * ms, Outcome: chaos.Stale})
			h.Faults = []chaos.Fault{{Kind: chaos.StopMaster, Start: 7 * s, End: 8 * s}}
		}},
		{name: "a task refused by the ledger and archived for it", want: "task c", change: func(h *chaos.History) {
			h.Tasks["c"] = &chaos.Task{ID: "c", Resource: "thing", Fate: chaos.FateOnce, Accepted: 2 * s}
			h.Archived["c"] = "has seen fence 31, refused the older 30"
			h.Runs = append(h.Runs, chaos.Run{Task: "c", Process: "w1", Resource: "thing", Fence: 30, Begin: 6500 * ms, Returned: 7500 * ms, Outcome: chaos.Stale})
		}},
		{name: "a task lost when Redis was restarted with its data", want: "task c", change: func(h *chaos.History) {
			h.Tasks["c"] = &chaos.Task{ID: "c", Resource: "thing", Fate: chaos.FateOK, Accepted: 6900 * ms}
			h.Faults = []chaos.Fault{{Kind: chaos.RestartKept, Start: 7 * s, End: 8 * s}}
		}},
		{name: "an effect written twice", want: "task b has 2 effects", change: func(h *chaos.History) {
			h.Effects = append(h.Effects, chaos.Effect{Task: "b", Resource: "thing", Fence: 21})
		}},
		{name: "an effect of a task that is not known", want: "effect of task c, which nobody enqueued", change: func(h *chaos.History) {
			h.Effects = append(h.Effects, chaos.Effect{Task: "c", Resource: "thing", Fence: 21})
		}},
		{name: "an effect of a task without a run", want: "effect of task b, of which no run is known", change: func(h *chaos.History) {
			h.Runs = h.Runs[:1]
		}},
		{name: "an effect of a task that fails", want: "task b, which always fails, has an effect", change: func(h *chaos.History) {
			h.Tasks["b"].Fate = chaos.FateHopeless
		}},
		{name: "a success without an effect", want: "task b was done by w2 at 5s, but has no effect", change: func(h *chaos.History) {
			h.Tasks["b"].Deleted = true
			h.Effects = h.Effects[:1]
		}},
		{name: "an effect after that of a higher fence", want: "the effect of b on thing has fence 9, that of a before it 10", change: func(h *chaos.History) {
			h.Effects[1].Fence = 9
		}},
		{name: "effects of one fence", want: "the effect of b on thing has fence 10, that of a before it 10", change: func(h *chaos.History) {
			h.Effects[1].Fence = 10
		}},
		{name: "a fence given out twice", want: "fence 10 of thing was given to a on w1 and b on w2", change: func(h *chaos.History) {
			h.Runs[1].Fence = 10
		}},
		{name: "a fence of two masters", change: func(h *chaos.History) {
			h.Runs[1].Fence, h.Effects[1].Fence = 10, 10
			h.Faults = []chaos.Fault{{Kind: chaos.StopMaster, Start: 1500 * ms, End: 4500 * ms}}
		}},
		{name: "a fence given out twice by one Redis", want: "fence 10 of thing was given to a on w1 and b on w2", change: func(h *chaos.History) {
			h.Runs[1].Fence = 10
			h.Faults = []chaos.Fault{{Kind: chaos.RestartEmpty, Start: 1500 * ms, End: 4500 * ms}}
		}},
		{name: "a fence given out twice, before there were two masters", want: "fence 10 of thing was given to a on w1 and b on w2", change: func(h *chaos.History) {
			h.Runs[1].Fence = 10
			h.Faults = []chaos.Fault{{Kind: chaos.StopMaster, Start: 2500 * ms, End: 4500 * ms}}
		}},
		{name: "two holders", want: "two hold thing from 2.9s to 3s: a on w1 (fence 10) and b on w2 (fence 20)", change: func(h *chaos.History) {
			h.Runs[1].Begin = 2900 * ms
		}},
		{name: "a holder that was told in time", change: func(h *chaos.History) {
			h.Runs[0].Lost, h.Runs[1].Begin = 2800*ms, 2900*ms
		}},
		{name: "a holder that died", change: func(h *chaos.History) {
			h.Runs[0].Returned, h.Processes["w1"].Exited = 0, 2800*ms
			h.Runs[1].Begin = 2900 * ms
		}},
		{name: "two holders, of which one stood still", change: func(h *chaos.History) {
			h.Runs[0].Returned, h.Runs[0].Lost = 5*s, 5*s
			h.Processes["w1"].Stops = []chaos.Stop{{From: 2100 * ms, To: 4900 * ms}}
			h.Faults = []chaos.Fault{{Kind: chaos.StopWorker, Process: "w1", Start: 2100 * ms, End: 4900 * ms}}
		}},
		{name: "a holder that believes in its lock long after it stood still", want: "task a on w1 believed in its lock for 2.1s", change: func(h *chaos.History) {
			h.Runs[0].Returned = 7 * s
			h.Processes["w1"].Stops = []chaos.Stop{{From: 2100 * ms, To: 4900 * ms}}
			h.Faults = []chaos.Fault{{Kind: chaos.StopWorker, Process: "w1", Start: 2100 * ms, End: 4900 * ms}}
		}},
		{name: "a holder that was stopped again before it could notice", change: func(h *chaos.History) {
			h.Runs[0].Returned = 7 * s
			h.Processes["w1"].Stops = []chaos.Stop{{From: 2100 * ms, To: 4900 * ms}, {From: 4910 * ms, To: 6500 * ms}}
			h.Faults = []chaos.Fault{{Kind: chaos.StopWorker, Process: "w1", Start: 2100 * ms, End: 6500 * ms}}
		}},
		{name: "a holder that was stopped time and again, and renewed its lock in between", change: func(h *chaos.History) {
			h.Runs[0].Returned, h.Runs[1].Begin, h.Runs[1].Returned = 7*s, 7100*ms, 8*s
			for at := 2100 * ms; at < 4900*ms; at += 400 * ms {
				h.Processes["w1"].Stops = append(h.Processes["w1"].Stops, chaos.Stop{From: at, To: at + 300*ms})
			}
		}},
		{name: "two holders after the lock was deleted", change: func(h *chaos.History) {
			h.Runs[1].Begin = 2900 * ms
			h.Faults = []chaos.Fault{{Kind: chaos.DeleteLock, Resource: "thing", Start: 2800 * ms, End: 2800 * ms}}
		}},
		{name: "two holders after another lock was deleted", want: "two hold thing", change: func(h *chaos.History) {
			h.Runs[1].Begin = 2900 * ms
			h.Faults = []chaos.Fault{{Kind: chaos.DeleteLock, Resource: "other", Start: 2800 * ms, End: 2800 * ms}}
		}},
		{name: "two holders after a failover", change: func(h *chaos.History) {
			h.Runs[1].Begin = 2900 * ms
			h.Faults = []chaos.Fault{{Kind: chaos.Failover, Start: 2500 * ms, End: 2800 * ms}}
		}},
		{name: "two holders long after a failover", want: "two hold thing", change: func(h *chaos.History) {
			h.Runs[0].Returned, h.Runs[1].Begin, h.Runs[1].Returned = 13*s, 12*s, 14*s
			h.Faults = []chaos.Fault{{Kind: chaos.Failover, Start: 1 * s, End: 2 * s}}
		}},
		{name: "two holders while Redis restarts with its data", want: "two hold thing", change: func(h *chaos.History) {
			h.Runs[1].Begin = 2900 * ms
			h.Faults = []chaos.Fault{{Kind: chaos.RestartKept, Start: 2500 * ms, End: 2800 * ms}}
		}},
		{name: "a worker that panicked", want: "worker w2: panic", change: func(h *chaos.History) {
			h.Processes["w2"].Crash = "panic"
		}},
		{name: "a key that is kept for ever", want: "key without expiry: lock:thing", change: func(h *chaos.History) {
			h.Forever = []string{"lock:thing"}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			h := story()
			tc.change(h)
			wantFinding(t, h, tc.want)
		})
	}
}

// wantFinding fails the test unless the one finding about h has the text want, or there is none if want
// is empty.
func wantFinding(t *testing.T, h *chaos.History, want string) {
	t.Helper()
	have := chaos.Check(h).Wrong
	switch {
	case want == "" && len(have) > 0, len(have) > 1:
		t.Errorf("want %q, have %q", want, have)
	case want != "" && (len(have) == 0 || !strings.Contains(have[0], want)):
		t.Errorf("want %q, have %q", want, have)
	}
}

// A case that a fault explains is counted for the kind of the fault.
func TestExcusedIsCounted(t *testing.T) {
	t.Parallel()
	h := story()
	h.Tasks["c"] = &chaos.Task{ID: "c", Resource: "thing", Fate: chaos.FateOK, Accepted: s}
	h.Runs[1].Begin = 2900 * ms
	h.Faults = []chaos.Fault{
		{Kind: chaos.DeleteLock, Resource: "thing", Start: 2800 * ms, End: 2800 * ms},
		{Kind: chaos.RestartEmpty, Start: 10 * s, End: 11 * s, Forgot: map[string]bool{"c": true}},
		{Kind: chaos.RestartEmpty, Start: 20 * s, End: 21 * s},
	}
	h.Faults[0].Hits = 1
	h.Planned = map[chaos.Kind]int{chaos.DeleteLock: 1, chaos.RestartEmpty: 2, chaos.KillWorker: 2}
	have := chaos.Check(h)
	want := &chaos.Verdict{Excused: map[chaos.Kind]*chaos.Account{
		chaos.DeleteLock: {Effective: 1, Overlaps: 1}, chaos.RestartEmpty: {Effective: 1, Lost: 1},
	}, Revoked: map[string]int{}}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("verdict (-want +have):\n%s", diff)
	}
	const shown = `  0 × worker killed (kill -9) (0 had an effect): 0 tasks lost, 0 overlapping holds, 0 shared fences, idle for 0.00 s at most
  2 × Redis killed, restarted empty (1 had an effect): 1 tasks lost, 0 overlapping holds, 0 shared fences, idle for 0.00 s at most
  1 × key of a held lock deleted (1 had an effect): 0 tasks lost, 1 overlapping holds, 0 shared fences, idle for 0.00 s at most
2 runs: done
tasks waited while a worker had room for 0 s in all
`
	if diff := cmp.Diff(shown, have.Summary(h)); diff != "" {
		t.Errorf("shown (-want +have):\n%s", diff)
	}
}

// The time after which a killed worker's task runs again counts from the kill.
func TestKilledRunAgain(t *testing.T) {
	t.Parallel()
	h := story()
	h.Runs[0].Returned, h.Runs[0].Outcome = 0, ""
	h.Processes["w1"].Exited = 2500 * ms
	h.Runs = append(h.Runs, chaos.Run{Task: "a", Process: "w2", Resource: "thing", Fence: 30, Begin: 14 * s, Returned: 15 * s, Outcome: chaos.Done})
	h.Effects = []chaos.Effect{{Task: "b", Resource: "thing", Fence: 20}, {Task: "a", Resource: "thing", Fence: 30}}
	h.Faults = []chaos.Fault{{Kind: chaos.KillWorker, Process: "w1", Start: 2500 * ms, End: 3 * s}}
	have := chaos.Check(h)
	if want := []time.Duration{11500 * ms}; !slices.Equal(have.Again, want) {
		t.Errorf("want %v, have %v", want, have.Again)
	}
	if want := "1 tasks of killed workers ran again after 11.5 s (median), 11.5 s at most\n"; !strings.Contains(have.Summary(h), want) {
		t.Errorf("want %q in\n%s", want, have.Summary(h))
	}
}
