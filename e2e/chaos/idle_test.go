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

// standstill is a history of two workers with room for one task each. Task b waits for a until 2 s,
// and then until it begins.
func standstill(begins time.Duration) *chaos.History {
	h := story()
	h.Concurrency = 1
	for _, p := range h.Processes {
		p.Serving = 500 * ms
	}
	h.Runs[0].Begin, h.Runs[0].Returned = 1*s, 2*s
	h.Runs[1].Begin, h.Runs[1].Returned = begins, begins+1*s
	return h
}

// add adds a task and its runs, and the effect of one that is done.
func add(h *chaos.History, t *chaos.Task, runs ...chaos.Run) {
	h.Tasks[t.ID] = t
	for _, r := range runs {
		r.Task, r.Resource = t.ID, t.Resource
		h.Runs = append(h.Runs, r)
		if r.Outcome == chaos.Done {
			h.Effects = append(h.Effects, chaos.Effect{Task: r.Task, Resource: r.Resource, Fence: r.Fence})
		}
	}
	slices.SortFunc(h.Effects, func(a, b chaos.Effect) int { return int(a.Fence - b.Fence) })
}

// waiter is a task that waits with b from the beginning and runs after it.
func waiter(h *chaos.History, id string) {
	n := int64(len(h.Tasks))
	last := h.Runs[len(h.Runs)-1]
	add(h, &chaos.Task{ID: id, Resource: "thing", Accepted: 1 * s},
		chaos.Run{Process: "w2", Fence: 10 * (n + 1), Begin: last.Returned, Returned: last.Returned + 100*ms, Outcome: chaos.Done})
}

// lostThrice has b lose its lock in three short runs, after a has ended.
func lostThrice(h *chaos.History) {
	for n, begin := range []time.Duration{2 * s, 3 * s, 5 * s} {
		add(h, h.Tasks["b"], chaos.Run{Process: "w1", Fence: 12 + int64(n), Begin: begin, Returned: begin + 1*s, Outcome: chaos.Ended})
	}
}

func TestIdle(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		begins time.Duration // when b does
		change func(*chaos.History)
		want   string // part of the one finding; empty for none
	}{
		{name: "b goes on at once", begins: 2100 * ms},
		{name: "b goes on in time", begins: 6 * s},
		{name: "b goes on too late", begins: 6100 * ms, want: "thing was free from 2s to 6.1s while 1 of its tasks waited, 100ms longer than it may be; before it: no fault; the last to explain it: no fault"},
		{name: "two wait", begins: 7 * s, want: "from 2s to 7s while 2 of its tasks waited", change: func(h *chaos.History) { waiter(h, "c") }},
		{name: "b is enqueued late", begins: 8 * s, change: func(h *chaos.History) { h.Tasks["b"].Accepted = 5 * s }},
		{name: "another has the resource meanwhile", begins: 10 * s, change: func(h *chaos.History) {
			add(h, &chaos.Task{ID: "c", Resource: "thing", Accepted: 4 * s}, chaos.Run{Process: "w1", Fence: 15, Begin: 5 * s, Returned: 6500 * ms, Outcome: chaos.Done})
		}},

		{name: "a and b need other parts", begins: 9 * s, want: "part:* was free from 2s to 9s", change: func(h *chaos.History) {
			for i, resource := range []string{queue.AllOf("part:0", "part:1"), queue.AllOf("part:2", "part:3")} {
				h.Tasks[h.Runs[i].Task].Resource, h.Runs[i].Resource, h.Effects[i].Resource = resource, resource, ""
			}
		}},
		{name: "somebody has another part meanwhile", begins: 9 * s, change: func(h *chaos.History) {
			for i, resource := range []string{queue.AllOf("part:0", "part:1"), queue.AllOf("part:2", "part:3")} {
				h.Tasks[h.Runs[i].Task].Resource, h.Runs[i].Resource, h.Effects[i].Resource = resource, resource, ""
			}
			h.Runs[0].Returned = 8500 * ms
		}},
		{name: "all workers are busy", begins: 9 * s, change: func(h *chaos.History) {
			add(h, &chaos.Task{ID: "c"}, chaos.Run{Process: "w1", Begin: 2 * s, Returned: 9 * s, Outcome: chaos.Done})
			add(h, &chaos.Task{ID: "d"}, chaos.Run{Process: "w2", Begin: 1 * s, Returned: 9 * s, Outcome: chaos.Done})
		}},
		{name: "one worker is busy", begins: 9 * s, want: "from 2s to 9s", change: func(h *chaos.History) {
			add(h, &chaos.Task{ID: "c"}, chaos.Run{Process: "w1", Begin: 2 * s, Returned: 9 * s, Outcome: chaos.Done})
		}},
		{name: "all workers are busy, each with room for one more", begins: 9 * s, want: "from 2s to 9s", change: func(h *chaos.History) {
			h.Concurrency = 2
			add(h, &chaos.Task{ID: "c"}, chaos.Run{Process: "w1", Begin: 2 * s, Returned: 9 * s, Outcome: chaos.Done})
			add(h, &chaos.Task{ID: "d"}, chaos.Run{Process: "w2", Begin: 1 * s, Returned: 9 * s, Outcome: chaos.Done})
		}},
		{name: "no worker serves yet", begins: 9 * s, change: func(h *chaos.History) {
			h.Processes["w1"].Exited, h.Processes["w2"].Serving = 2*s, 8*s
		}},
		{name: "a worker serves", begins: 9 * s, want: "from 4s to 9s", change: func(h *chaos.History) {
			h.Processes["w1"].Exited, h.Processes["w2"].Serving = 2*s, 4*s
		}},
		{name: "one worker is gone, the other one stopped", begins: 9 * s, change: func(h *chaos.History) {
			waiter(h, "c")
			waiter(h, "d")
			h.Processes["w1"].Exited = 2 * s
			h.Processes["w2"].Stops = []chaos.Stop{{From: 2100 * ms, To: 8900 * ms}}
		}},

		{name: "b is deleted, or may be", begins: 9 * s, change: func(h *chaos.History) { h.Tasks["b"].Deleted = true }},
		{name: "b is archived", begins: 9 * s, change: func(h *chaos.History) { h.Tasks["b"].Shelved = true }},
		{name: "b was archived and run again", begins: 9 * s, change: func(h *chaos.History) { h.Tasks["b"].RunAgain = 6 * s }},
		{name: "b was archived and run again, and waits too long", begins: 9 * s, want: "from 3s to 9s", change: func(h *chaos.History) { h.Tasks["b"].RunAgain = 3 * s }},
		{name: "b's enqueue was not answered", begins: 9 * s, change: func(h *chaos.History) { h.Tasks["b"].Unknown = true }},
		{name: "b is forgotten soon", begins: 9 * s, change: func(h *chaos.History) {
			h.Runs, h.Effects = h.Runs[:1], h.Effects[:1]
			h.Faults = []chaos.Fault{{Kind: chaos.RestartEmpty, Start: 5 * s, End: 7 * s, Forgot: map[string]bool{"b": true}}}
		}},
		{name: "b is forgotten after too long", begins: 9 * s, want: "from 2s to 8s", change: func(h *chaos.History) {
			h.Runs, h.Effects = h.Runs[:1], h.Effects[:1]
			h.Faults = []chaos.Fault{{Kind: chaos.RestartEmpty, Start: 8 * s, End: 9 * s, Forgot: map[string]bool{"b": true}}}
		}},
		{name: "b ended by its policy", begins: 9 * s, change: func(h *chaos.History) { coalesced(h, 5*s) }},
		{name: "b ended by its policy after too long", begins: 9 * s, want: "from 2s to 8s", change: func(h *chaos.History) { coalesced(h, 8*s) }},
		{name: "b ended by its policy, and its worker died", begins: 20 * s, change: func(h *chaos.History) {
			runs, effects := slices.Clone(h.Runs), slices.Clone(h.Effects)
			coalesced(h, 5*s)
			h.Runs, h.Effects, h.Faults = runs, effects, nil
			h.Requeued = []chaos.Requeued{{Task: "b", At: 19 * s}}
		}},

		{name: "b failed by itself and rests", begins: 40 * s, change: func(h *chaos.History) {
			h.Tasks["b"].Fate = chaos.FateFlaky
			add(h, h.Tasks["b"], chaos.Run{Process: "w1", Fence: 15, Begin: 2 * s, Returned: 3 * s, Outcome: chaos.Failed})
		}},
		{name: "b could not write to the ledger and rests", begins: 40 * s, change: func(h *chaos.History) {
			add(h, h.Tasks["b"], chaos.Run{Process: "w1", Fence: 15, Begin: 2 * s, Returned: 3 * s, Outcome: chaos.Broken})
		}},
		{name: "b lost its lock", begins: 9 * s, want: "from 3s to 9s", change: func(h *chaos.History) {
			add(h, h.Tasks["b"], chaos.Run{Process: "w1", Fence: 15, Begin: 2 * s, Returned: 3 * s, Outcome: chaos.Ended})
		}},
		{name: "b lost its lock three times, and comes by itself after more than four seconds", begins: 13 * s, change: lostThrice},
		{name: "b lost its lock three times, and comes too late", begins: 13200 * ms, want: "from 9.15s to 13.2s", change: lostThrice},
		{name: "b lost its lock three times, and was then taken for crashed once too often", begins: 40 * s, change: func(h *chaos.History) {
			lostThrice(h)
			h.Runs[1].Retried = 1
		}},
		{name: "b was refused by the ledger", begins: 9 * s, want: "from 3s to 9s", change: func(h *chaos.History) {
			add(h, h.Tasks["b"], chaos.Run{Process: "w1", Fence: 15, Begin: 2 * s, Returned: 3 * s, Outcome: chaos.Stale})
		}},
		{name: "b lost its lock and is acknowledged late", begins: 12 * s, change: func(h *chaos.History) {
			add(h, h.Tasks["b"], chaos.Run{Process: "w1", Fence: 15, Begin: 2 * s, Returned: 3 * s, Outcome: chaos.Ended})
			h.Faults = []chaos.Fault{{Kind: chaos.HangRedis, Start: 2500 * ms, End: 4 * s}} // acknowledged at 8 s
		}},
		{name: "b lost its lock, was acknowledged late, and waits too long", begins: 13 * s, want: "from 8s to 13s", change: func(h *chaos.History) {
			add(h, h.Tasks["b"], chaos.Run{Process: "w1", Fence: 15, Begin: 2 * s, Returned: 3 * s, Outcome: chaos.Ended})
			h.Faults = []chaos.Fault{{Kind: chaos.HangRedis, Start: 2500 * ms, End: 4 * s}}
		}},
		{name: "b lost its lock while a queue was paused", begins: 10 * s, want: "from 3s to 10s", change: func(h *chaos.History) {
			add(h, h.Tasks["b"], chaos.Run{Process: "w1", Fence: 15, Begin: 2 * s, Returned: 3 * s, Outcome: chaos.Ended})
			h.Faults = []chaos.Fault{{Kind: chaos.PauseQueue, Start: 2500 * ms, End: 4 * s}}
		}},
		{name: "b lost its lock long after Redis was away", begins: 10 * s, want: "from 3s to 10s", change: func(h *chaos.History) {
			add(h, h.Tasks["b"], chaos.Run{Process: "w1", Fence: 15, Begin: 2 * s, Returned: 3 * s, Outcome: chaos.Ended})
			hang(h, 500*ms, 900*ms)
		}},

		{name: "a's worker is killed, b goes on in time", begins: 6500 * ms, change: killed},
		{name: "a's worker is killed, b goes on too late", begins: 6600 * ms, want: `from 1.5s to 6.6s while 1 of its tasks waited, 100ms longer than it may be; before it: worker killed (kill -9), from 1.5s to 2s; the last to explain it: worker killed`, change: killed},
		{name: "only a waits, whose worker was killed", begins: 26500 * ms, change: onlyCrashed},
		{name: "only a waits, whose worker was killed, for too long", begins: 28 * s, want: "from 1.5s to 28s while 1 of its tasks waited, of dead workers only", change: onlyCrashed},
		{name: "a was requeued", begins: 28 * s, change: func(h *chaos.History) {
			onlyCrashed(h)
			h.Requeued = []chaos.Requeued{{Task: "a", At: 25 * s}}
		}},
		{name: "a was requeued and waits for too long", begins: 25 * s, want: "from 20s to 25s while 1 of its tasks waited", change: func(h *chaos.History) {
			onlyCrashed(h)
			h.Requeued = []chaos.Requeued{{Task: "a", At: 20 * s}}
		}},
		{name: "a crashed so often that it is left to asynq", begins: 90 * s, change: func(h *chaos.History) {
			onlyCrashed(h)
			h.Requeued = []chaos.Requeued{{Task: "a", At: 400 * ms}, {Task: "a", At: 200 * ms}, {Task: "a", At: 300 * ms}}
		}},
		{name: "a's worker is killed, and nothing goes on", begins: 30 * s, want: "from 1.5s to 30s while 1 of its tasks waited,", change: func(h *chaos.History) {
			killed(h)
			h.Requeued, h.Runs[2].Begin, h.Runs[2].Returned = nil, 31*s, 32*s
		}},
		{name: "only a waits, and a fault comes", begins: 45 * s, change: func(h *chaos.History) {
			onlyCrashed(h)
			hang(h, 20*s, 22*s)
		}},
		{name: "a was done, which Redis was not told", begins: 2100 * ms, change: func(h *chaos.History) {
			h.Requeued = []chaos.Requeued{{Task: "a", At: 20 * s}}
			h.Runs = append(h.Runs, chaos.Run{Task: "a", Process: "w1", Resource: "thing", Fence: 50, Begin: 20 * s, Returned: 21 * s, Outcome: chaos.Done})
		}},
		{name: "b was taken by a worker that was cut off", begins: 23 * s, change: func(h *chaos.History) {
			h.Requeued = []chaos.Requeued{{Task: "b", At: 20 * s}}
		}},
		{name: "b was taken by a worker that was cut off, and began before its requeue was written down", begins: 20 * s, change: func(h *chaos.History) {
			h.Requeued = []chaos.Requeued{{Task: "b", At: 20*s + 6*ms}}
		}},
		{name: "b was requeued long after it began", begins: 20 * s, want: "from 2s to 20s", change: func(h *chaos.History) {
			h.Requeued = []chaos.Requeued{{Task: "b", At: 22 * s}}
		}},

		{name: "b begins during a fault", begins: 9 * s, change: func(h *chaos.History) { hang(h, 1500*ms, 10*s) }},
		{name: "b begins soon after a fault", begins: 12 * s, change: func(h *chaos.History) { hang(h, 1500*ms, 7*s) }},
		{name: "b begins long after a fault", begins: 13 * s, want: `from 2s to 13s while 1 of its tasks waited, 1s longer than it may be; before it: Redis stopped for 1 to 4 s (SIGSTOP), from 1.5s to 7s`, change: func(h *chaos.History) { hang(h, 1500*ms, 7*s) }},
		{name: "a fault comes while b waits", begins: 9 * s, change: func(h *chaos.History) { hang(h, 5*s, 7*s) }},
		{name: "a fault comes after b has waited for too long", begins: 9 * s, want: "from 2s to 9s", change: func(h *chaos.History) { hang(h, 6500*ms, 7*s) }},
		{name: "a second fault comes in time", begins: 14 * s, change: func(h *chaos.History) {
			hang(h, 1500*ms, 4*s)
			hang(h, 8900*ms, 9*s)
		}},
		{name: "a second fault comes too late", begins: 14 * s, want: "from 2s to 14s while 1 of its tasks waited, 5s longer", change: func(h *chaos.History) {
			hang(h, 1500*ms, 4*s)
			hang(h, 10*s, 11*s)
		}},
		{name: "a fault ends within another one", begins: 12 * s, change: func(h *chaos.History) {
			hang(h, 1500*ms, 7*s)
			hang(h, 2*s, 3*s)
		}},
		{name: "a fault ends within another one, long ago", begins: 13 * s, want: "the last to explain it: Redis stopped for 1 to 4 s (SIGSTOP), from 1.5s to 7s", change: func(h *chaos.History) {
			hang(h, 1500*ms, 7*s)
			hang(h, 2*s, 3*s)
		}},
		{name: "a script cache is flushed", begins: 9 * s, want: "2s longer than it may be; before it: no fault; the last to explain it: SCRIPT FLUSH", change: func(h *chaos.History) {
			h.Faults = []chaos.Fault{{Kind: chaos.FlushScripts, Start: 3 * s, End: 3 * s}}
		}},
		{name: "a queue is paused for long", begins: 12 * s, change: func(h *chaos.History) {
			h.Faults = []chaos.Fault{{Kind: chaos.PauseQueue, Start: 1900 * ms, End: 8 * s}}
		}},
		{name: "a queue was paused long ago", begins: 12500 * ms, want: "500ms longer", change: func(h *chaos.History) {
			h.Faults = []chaos.Fault{{Kind: chaos.PauseQueue, Start: 1900 * ms, End: 8 * s}}
		}},
		{name: "the lock is deleted", begins: 7 * s, change: func(h *chaos.History) {
			h.Faults = []chaos.Fault{{Kind: chaos.DeleteLock, Resource: "thing", Start: 3 * s, End: 3 * s}}
		}},
		{name: "another lock is deleted", begins: 7 * s, want: "explain it: no fault", change: func(h *chaos.History) {
			h.Faults = []chaos.Fault{{Kind: chaos.DeleteLock, Resource: "other", Start: 3 * s, End: 3 * s}}
		}},
		{name: "a master is killed", begins: 9500 * ms, change: func(h *chaos.History) { failover(h, 5*s) }},
		{name: "a master is killed, b begins too late", begins: 10 * s, want: "500ms longer", change: func(h *chaos.History) { failover(h, 5*s) }},
		{name: "a master is killed, and replaced late", begins: 13 * s, change: func(h *chaos.History) { failover(h, 12*s) }},

		{name: "a's worker is stopped, b and c go on in time", begins: 6500 * ms, change: func(h *chaos.History) {
			waiter(h, "c")
			stopped(h)
		}},
		{name: "a's worker is stopped, b and c go on too late", begins: 7 * s, want: "from 1.5s to 7s", change: func(h *chaos.History) {
			waiter(h, "c")
			stopped(h)
		}},
		{name: "the stopped worker may have taken b", begins: 9 * s, change: stopped},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			h := standstill(tc.begins)
			for _, p := range h.Processes {
				p.Exited = 100 * s
			}
			if tc.change != nil {
				tc.change(h)
			}
			have := chaos.Check(h).Wrong
			switch {
			case tc.want == "" && len(have) > 0, len(have) > 1:
				t.Errorf("want %q, have %q", tc.want, have)
			case tc.want != "" && (len(have) == 0 || !strings.Contains(have[0], tc.want)):
				t.Errorf("want %q, have %q", tc.want, have)
			}
		})
	}
}

// killed kills a's worker in it. a is requeued and runs after b.
func killed(h *chaos.History) {
	h.Runs[0].Returned, h.Runs[0].Outcome, h.Processes["w1"].Exited = 0, "", 1500*ms
	h.Effects = h.Effects[1:]
	add(h, h.Tasks["a"], chaos.Run{Process: "w2", Fence: 50, Begin: 17 * s, Returned: 18 * s, Outcome: chaos.Done})
	h.Requeued = []chaos.Requeued{{Task: "a", At: 16 * s}}
	h.Faults = []chaos.Fault{{Kind: chaos.KillWorker, Process: "w1", Start: 1500 * ms, End: 2 * s}}
}

// onlyCrashed does so without b. Nobody is seen to put a back; it runs when b would.
func onlyCrashed(h *chaos.History) {
	killed(h)
	begins := h.Runs[1].Begin
	delete(h.Tasks, "b")
	h.Runs, h.Effects = slices.Delete(h.Runs, 1, 2), h.Effects[1:]
	h.Runs[1].Begin, h.Runs[1].Returned = begins, begins+1*s
	h.Requeued = nil
}

// stopped stops a's worker in it, until 8 s. a runs again after b and c.
func stopped(h *chaos.History) {
	h.Runs[0].Returned, h.Runs[0].Lost, h.Runs[0].Outcome = 8100*ms, 8100*ms, chaos.Ended
	h.Processes["w1"].Stops = []chaos.Stop{{From: 1500 * ms, To: 8 * s}}
	h.Effects = h.Effects[1:]
	add(h, h.Tasks["a"], chaos.Run{Process: "w2", Fence: 50, Begin: 10500 * ms, Returned: 11 * s, Outcome: chaos.Done})
	h.Faults = []chaos.Fault{{Kind: chaos.StopWorker, Process: "w1", Start: 1500 * ms, End: 8 * s}}
}

// coalesced has b end by its policy, as c waits, and Redis forget all at 12 s.
func coalesced(h *chaos.History, at time.Duration) {
	h.Runs, h.Effects = h.Runs[:1], h.Effects[:1]
	h.Tasks["b"].Policy = coalesces
	h.Ends = []chaos.End{{By: queue.EventCoalesced, Task: "b", Other: "c", Process: "w1", At: at}}
	h.Tasks["c"] = &chaos.Task{ID: "c", Deleted: true}
	h.Faults = []chaos.Fault{{Kind: chaos.RestartEmpty, Start: 12 * s, End: 13 * s, Forgot: map[string]bool{"b": true}}}
}

func hang(h *chaos.History, from, to time.Duration) {
	h.Faults = append(h.Faults, chaos.Fault{Kind: chaos.HangRedis, Start: from, End: to})
}

func failover(h *chaos.History, to time.Duration) {
	h.Faults = []chaos.Fault{{Kind: chaos.Failover, Start: 1500 * ms, End: to}}
}

// TestIdleIsKept wants the longest idle time after each kind of fault, also if none was
// too long.
func TestIdleIsKept(t *testing.T) {
	t.Parallel()
	h := standstill(8 * s)
	h.Faults = []chaos.Fault{
		{Kind: chaos.HangRedis, Start: 1500 * ms, End: 5 * s},
		{Kind: chaos.KillWorker, Process: "w3", Start: 20 * s, End: 21 * s},
		{Kind: chaos.KillWorker, Process: "w3", Start: 30 * s, End: 31 * s},
	}
	add(h, &chaos.Task{ID: "c", Resource: "thing", Accepted: 21 * s}, chaos.Run{Process: "w2", Fence: 30, Begin: 22500 * ms, Returned: 23 * s, Outcome: chaos.Done})
	add(h, &chaos.Task{ID: "d", Resource: "thing", Accepted: 32 * s}, chaos.Run{Process: "w2", Fence: 40, Begin: 33 * s, Returned: 34 * s, Outcome: chaos.Done})
	v := chaos.Check(h)
	have := make(map[chaos.Kind]time.Duration)
	for kind, account := range v.Excused {
		have[kind] = account.Idle
	}
	want := map[chaos.Kind]time.Duration{chaos.HangRedis: 3 * s, chaos.KillWorker: 1500 * ms}
	if watched := 9500 * ms; v.Watched != watched {
		t.Errorf("watched: want %v, have %v", watched, v.Watched)
	}
	if diff := cmp.Diff(want, have); diff != "" || len(v.Wrong) > 0 {
		t.Errorf("idle (-want +have), and wrong: %q\n%s", v.Wrong, diff)
	}
}
