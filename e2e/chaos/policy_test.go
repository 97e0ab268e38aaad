package chaos_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sidingq/siding/e2e/chaos"
	"github.com/sidingq/siding/queue"
)

var (
	rejects   = queue.Policy{OnBusy: queue.OnBusyReject}
	coalesces = queue.Policy{OnBusy: queue.OnBusyCoalesce}
	replaces  = queue.Policy{OnBusy: queue.OnBusyReplace}
)

// withPolicy adds a task with a policy, which is enqueued at 6 s, and its runs.
func withPolicy(h *chaos.History, id string, p queue.Policy, runs ...chaos.Run) *chaos.Task {
	t := &chaos.Task{ID: id, Resource: "thing", Fate: chaos.FateOK, Policy: p, Sent: 6 * s, Accepted: 6 * s}
	add(h, t, runs...)
	return t
}

// done returns a run of w2 that is done.
func done(begin time.Duration) chaos.Run {
	return chaos.Run{Process: "w2", Fence: int64(begin / ms), Begin: begin, Returned: begin + 100*ms, Outcome: chaos.Done}
}

// end has w1 end a task at 7 s.
func end(h *chaos.History, by queue.EventKind, id, other string) {
	h.Ends = append(h.Ends, chaos.End{By: by, Task: id, Other: other, Process: "w1", At: 7 * s})
}

// rejected has c rejected and archived.
func rejected(h *chaos.History, runs ...chaos.Run) *chaos.Task {
	end(h, queue.EventRejected, "c", "")
	h.Archived["c"] = "rejected: thing is held by a"
	return withPolicy(h, "c", rejects, runs...)
}

// impatient adds task c, which may wait for a second, behind another one. A worker has room.
func impatient(h *chaos.History, runs ...chaos.Run) {
	h.Concurrency = 1
	for _, p := range h.Processes {
		p.Serving = ms
	}
	holder := &chaos.Task{ID: "z", Resource: "thing", Fate: chaos.FateOK, Sent: 5500 * ms, Accepted: 5500 * ms}
	add(h, holder, chaos.Run{Process: "w1", Fence: 59, Begin: 5900 * ms, Returned: 10300 * ms, Outcome: chaos.Done})
	withPolicy(h, "c", queue.Policy{MaxWait: s}, runs...)
}

// waitedTooLong has c archived at that time.
func waitedTooLong(h *chaos.History, at time.Duration) {
	impatient(h)
	end(h, queue.EventWaitedTooLong, "c", "")
	h.Ends[len(h.Ends)-1].At = at
	h.Archived["c"] = "waited too long: for thing"
}

// TestCheckPolicies adds task c to the story, which ends by its policy, perhaps in favor of d.
func TestCheckPolicies(t *testing.T) {
	t.Parallel()
	coalesced := func(h *chaos.History) {
		withPolicy(h, "c", coalesces)
		end(h, queue.EventCoalesced, "c", "d")
	}
	replaced := func(h *chaos.History) {
		withPolicy(h, "c", replaces)
		end(h, queue.EventReplaced, "c", "d")
	}
	for _, tc := range []struct {
		name   string
		change func(*chaos.History)
		want   string // part of the one finding; empty for none
	}{
		{name: "rejected", change: func(h *chaos.History) { rejected(h) }},
		{name: "rejected, as nobody wrote down", want: "task c (ok, on \"thing\") is lost", change: func(h *chaos.History) {
			rejected(h)
			h.Ends = nil
		}},
		{name: "rejected, and archived for something else", want: "task c (ok, on \"thing\") is lost", change: func(h *chaos.History) {
			rejected(h)
			h.Archived["c"] = "waited too long: for thing"
		}},
		{name: "rejected, and in no archive", want: "task c (ok, on \"thing\") is lost", change: func(h *chaos.History) {
			rejected(h)
			delete(h.Archived, "c")
		}},
		{name: "rejected, and Redis forgot the archive", change: func(h *chaos.History) {
			rejected(h)
			delete(h.Archived, "c")
			h.Faults = []chaos.Fault{{Kind: chaos.RestartEmpty, Start: 9 * s, End: 9 * s, Forgot: map[string]bool{"c": true}}}
		}},
		{name: "rejected by no policy of its own", want: "task c was rejected at 7s on w1, and has no such policy", change: func(h *chaos.History) {
			rejected(h).Policy = queue.Policy{MaxWait: s}
		}},
		{name: "rejected as too many wait", change: func(h *chaos.History) { rejected(h).Policy = queue.Policy{MaxWaiting: 1} }},
		{name: "rejected as too many wait, and few do", want: "task c was rejected at 7s on w1, and at most 2 others waited: want 3 or more", change: func(h *chaos.History) {
			rejected(h).Policy = queue.Policy{MaxWaiting: 3}
		}},
		{name: "rejected as too many wait, one of which nobody sees again", change: func(h *chaos.History) {
			rejected(h).Policy = queue.Policy{MaxWaiting: 3}
			withPolicy(h, "d", coalesces).Deleted = true
		}},
		{name: "rejected as too many wait, and two were done long before", want: "at most 0 others waited", change: func(h *chaos.History) {
			rejected(h).Policy = queue.Policy{MaxWaiting: 1}
			h.Tasks["c"].Sent, h.Tasks["c"].Accepted, h.Ends[0].At = 15*s, 15*s, 16*s
		}},
		{name: "rejected, and requeued, and gone", want: "task c (ok, on \"thing\") is lost", change: func(h *chaos.History) {
			rejected(h)
			h.Requeued = []chaos.Requeued{{Task: "c", At: 9 * s}}
		}},
		{name: "rejected, and ran", want: "task c was rejected at 7s on w1, and ran on w2 at 8s", change: func(h *chaos.History) { rejected(h, done(8*s)) }},
		{name: "rejected by a worker that died, and ran", change: func(h *chaos.History) {
			rejected(h, done(9*s))
			h.Processes["w1"].Exited = 7100 * ms
		}},
		{name: "rejected while Redis was away, and ran", change: func(h *chaos.History) {
			rejected(h, done(9*s))
			hang(h, 7100*ms, 8*s)
		}},
		{name: "rejected, and ran on a worker that stood still", change: func(h *chaos.History) {
			rejected(h, done(9*s))
			h.Processes["w2"].Stops = []chaos.Stop{{From: 6 * s, To: 8900 * ms}}
		}},
		{name: "rejected, and its client sent it again", change: func(h *chaos.History) { rejected(h, done(9*s)).Accepted = 8 * s }},
		{name: "rejected after it was done", want: "task c was rejected at 7s on w1, and had been done by w2 at 6.2s", change: func(h *chaos.History) {
			rejected(h, done(6100*ms))
		}},
		{name: "rejected after it was done, which Redis was not told", change: func(h *chaos.History) {
			rejected(h, done(6100*ms))
			h.Processes["w2"].Exited = 6200 * ms
		}},
		{name: "rejected after it had lost its lock", change: func(h *chaos.History) {
			rejected(h, chaos.Run{Process: "w2", Fence: 61, Begin: 6100 * ms, Returned: 6200 * ms, Outcome: chaos.Ended})
		}},

		{name: "waited too long", change: func(h *chaos.History) {
			waitedTooLong(h, 7*s)
		}},
		{name: "waited too long, and came later than that", want: "task c had waited too long at 7s on w1, and was enqueued at 6s: want 2s or more", change: func(h *chaos.History) {
			withPolicy(h, "c", queue.Policy{MaxWait: 2 * s})
			end(h, queue.EventWaitedTooLong, "c", "")
			h.Archived["c"] = "waited too long: for thing"
		}},
		{name: "waited too long by no policy of its own", want: "task c was waited_too_long at 7s on w1, and has no such policy", change: func(h *chaos.History) {
			withPolicy(h, "c", replaces)
			end(h, queue.EventWaitedTooLong, "c", "")
			h.Archived["c"] = "waited too long: for thing"
		}},

		{name: "waited too long, and ended as late as it may", change: func(h *chaos.History) { waitedTooLong(h, 10400*ms) }},
		{name: "waited for longer than it may", want: "task c, which waits for 1s at most, waited from 6s to 10.6s, 1.1s longer than it may", change: func(h *chaos.History) {
			waitedTooLong(h, 10600*ms)
		}},
		{name: "waited for longer than it may, and ran", want: "task c, which waits for 1s at most, waited from 6s to 10.6s", change: func(h *chaos.History) {
			impatient(h, done(10600*ms))
		}},
		{name: "waited for longer than it may, after a fault", change: func(h *chaos.History) {
			waitedTooLong(h, 12*s)
			hang(h, 7100*ms, 8*s)
		}},

		{name: "coalesced", change: func(h *chaos.History) {
			coalesced(h)
			withPolicy(h, "d", coalesces, done(8*s))
		}},
		{name: "coalesced by no policy of its own", want: "c was coalesced at 7s on w1, and has no such policy", change: func(h *chaos.History) {
			coalesced(h)
			h.Tasks["c"].Policy = queue.Policy{MaxWait: time.Second}
			withPolicy(h, "d", coalesces, done(8*s))
		}},
		{name: "coalesced, and archived", want: "is archived for \"too bad\"", change: func(h *chaos.History) {
			coalesced(h)
			h.Archived["c"] = "too bad"
			withPolicy(h, "d", coalesces, done(8*s))
		}},
		{name: "coalesced into one that had run", want: "task c was coalesced at 7s on w1, and d did not run after it was enqueued at 6s", change: func(h *chaos.History) {
			coalesced(h)
			withPolicy(h, "d", coalesces, done(5900*ms))
		}},
		{name: "coalesced into one that nobody knows", want: "and d did not run", change: coalesced},
		{name: "coalesced into one that was deleted", change: func(h *chaos.History) {
			coalesced(h)
			withPolicy(h, "d", coalesces).Deleted = true
		}},
		{name: "coalesced into one that Redis lost", change: func(h *chaos.History) {
			coalesced(h)
			withPolicy(h, "d", coalesces)
			h.Faults = []chaos.Fault{{Kind: chaos.Failover, Start: 6500 * ms, End: 7 * s}}
		}},
		{name: "coalesced into one that waited too long", change: func(h *chaos.History) {
			coalesced(h)
			withPolicy(h, "d", queue.Policy{OnBusy: queue.OnBusyCoalesce, MaxWait: s})
			end(h, queue.EventWaitedTooLong, "d", "")
			h.Archived["d"] = "waited too long: for thing"
		}},
		{name: "coalesced into one that was coalesced", change: func(h *chaos.History) {
			coalesced(h)
			withPolicy(h, "d", coalesces)
			end(h, queue.EventCoalesced, "d", "e")
			withPolicy(h, "e", coalesces, done(8*s))
		}},
		{name: "coalesced into one that was coalesced into one that had run", want: "task c was coalesced at 7s on w1, and d did not run", change: func(h *chaos.History) {
			coalesced(h)
			withPolicy(h, "d", coalesces).Sent = 5 * s
			end(h, queue.EventCoalesced, "d", "e")
			withPolicy(h, "e", coalesces, done(5500*ms))
		}},
		{name: "coalesced in a circle, by a worker that died", change: func(h *chaos.History) {
			withPolicy(h, "c", coalesces, done(9*s))
			end(h, queue.EventCoalesced, "c", "d")
			h.Processes["w1"].Exited = 7100 * ms
			withPolicy(h, "d", coalesces)
			h.Ends = append(h.Ends, chaos.End{By: queue.EventCoalesced, Task: "d", Other: "c", Process: "w2", At: 8 * s})
		}},

		{name: "replaced", change: func(h *chaos.History) {
			replaced(h)
			withPolicy(h, "d", replaces, done(8*s))
		}},
		{name: "replaced, and ran", want: "task c was replaced at 7s on w1, and ran on w2 at 9s", change: func(h *chaos.History) {
			withPolicy(h, "c", replaces, done(9*s))
			end(h, queue.EventReplaced, "c", "d")
			withPolicy(h, "d", replaces, done(8*s))
		}},
		{name: "replaced by one that did not run", want: "and d did not run", change: func(h *chaos.History) {
			replaced(h)
			withPolicy(h, "d", replaces, done(5900*ms))
		}},
		{name: "replaced, which a killed worker did not write down", change: func(h *chaos.History) {
			withPolicy(h, "c", replaces)
			withPolicy(h, "d", replaces, done(8*s))
			h.Faults = []chaos.Fault{{Kind: chaos.KillWorker, Process: "w1", Start: 7 * s, End: 7100 * ms}}
		}},
		{name: "replaced, which a killed worker did not write down, by one that was replaced", change: func(h *chaos.History) {
			withPolicy(h, "c", replaces).Sent = 5 * s
			withPolicy(h, "d", replaces)
			end(h, queue.EventReplaced, "d", "e")
			withPolicy(h, "e", replaces).Deleted = true
			h.Faults = []chaos.Fault{{Kind: chaos.KillWorker, Process: "w1", Start: 6 * s, End: 7100 * ms}}
		}},
		{name: "replaced, as nobody wrote down", want: "task c (ok, on \"thing\") is lost", change: func(h *chaos.History) {
			withPolicy(h, "c", replaces)
			withPolicy(h, "d", replaces, done(8*s))
			h.Faults = []chaos.Fault{{Kind: chaos.KillWorker, Process: "w1", Start: s, End: 2 * s}}
		}},
		{name: "gone when a worker was killed, and no later one ran", want: "task c (ok, on \"thing\") is lost", change: func(h *chaos.History) {
			withPolicy(h, "c", replaces)
			withPolicy(h, "d", replaces, done(6500*ms))
			h.Faults = []chaos.Fault{{Kind: chaos.KillWorker, Process: "w1", Start: 7 * s, End: 7100 * ms}}
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

// TestPriorities has a hundred tasks of each of two priorities.
func TestPriorities(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		waits   [2]time.Duration
		highest int
		want    string // part of the one finding; empty for none
	}{
		{name: "the highest comes first", waits: [2]time.Duration{40 * ms, 20 * ms}, highest: 100},
		{name: "the highest comes no earlier", waits: [2]time.Duration{20 * ms, 20 * ms}, highest: 100, want: "half of the tasks of priority 9 waited for 20ms"},
		{name: "too few to tell", waits: [2]time.Duration{20 * ms, 20 * ms}, highest: 99},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := story()
			for n := range 100 + tt.highest {
				level := n / 100
				id := fmt.Sprint("p", n)
				begin := 6*s + time.Duration(n)*100*ms
				task := &chaos.Task{ID: id, Resource: id, Fate: chaos.FateOK, Priority: level * queue.MaxPriority, Accepted: begin - tt.waits[level]}
				add(h, task, chaos.Run{Process: "w1", Fence: int64(100 + n), Begin: begin, Returned: begin + 10*ms, Outcome: chaos.Done})
			}
			wantFinding(t, h, tt.want)
			if told := chaos.Check(h).Waits != [2]time.Duration{}; told != (tt.highest == 100) {
				t.Errorf("want the medians told of a hundred tasks, have %v", chaos.Check(h).Waits)
			}
		})
	}
}
