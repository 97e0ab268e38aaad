package chaos_test

import (
	"testing"
	"time"

	"github.com/sidingq/siding/e2e/chaos"
)

// inLine adds a task of a line, and its runs.
func inLine(h *chaos.History, id string, sent time.Duration, runs ...chaos.Run) *chaos.Task {
	t := &chaos.Task{ID: id, Queue: "q", Resource: "line:0", Fate: chaos.FateTwice, Sent: sent, Accepted: sent + ms}
	add(h, t, runs...)
	return t
}

// failed returns a run of w2 that fails.
func failed(begin time.Duration) chaos.Run {
	r := done(begin)
	r.Outcome = chaos.Failed
	return r
}

// passed has d, which was sent after c, begin while c waits for its retry.
func passed(h *chaos.History) (c, d *chaos.Task) {
	return inLine(h, "c", 6*s, failed(7*s), done(9*s)), inLine(h, "d", 6500*ms, done(8*s))
}

// lostAndPassed has d begin after c has lost its lock, and before c comes again.
func lostAndPassed(h *chaos.History) (c, d *chaos.Task) {
	lost := failed(7 * s)
	lost.Lost, lost.Outcome = 7050*ms, chaos.Ended
	return inLine(h, "c", 6*s, lost, done(9*s)), inLine(h, "d", 6500*ms, done(8*s))
}

// TestCheckOrder adds tasks of a line to the story.
func TestCheckOrder(t *testing.T) {
	t.Parallel()
	const early = "task d began on w2 at 8s, before c, accepted at 6.001s, which ran on w2 at 9s and was to end first"
	for _, tc := range []struct {
		name   string
		change func(*chaos.History)
		want   string // part of the one finding; empty for none
	}{
		{name: "in order", change: func(h *chaos.History) {
			inLine(h, "c", 6*s, failed(7*s), failed(7500*ms), done(8*s))
			inLine(h, "d", 6500*ms, done(9*s))
		}},
		{name: "while the one before it waits for its retry", want: early, change: func(h *chaos.History) { passed(h) }},
		{name: "before the one before it", want: early, change: func(h *chaos.History) {
			inLine(h, "c", 6*s, done(9*s))
			inLine(h, "d", 6500*ms, done(8*s))
		}},
		{name: "before the one before that", want: early, change: func(h *chaos.History) {
			passed(h)
			inLine(h, "between", 6100*ms).Deleted = true
		}},
		{name: "before one that came at the same time", change: func(h *chaos.History) {
			c, d := passed(h)
			c.Accepted, d.Sent = 6600*ms, 6400*ms
		}},
		{name: "before one of another queue", change: func(h *chaos.History) {
			c, _ := passed(h)
			c.Queue = "other"
		}},
		{name: "before one of another line", change: func(h *chaos.History) {
			inLine(h, "c", 6*s, failed(7*s), done(9*s))
			add(h, &chaos.Task{ID: "d", Queue: "q", Resource: "line:1", Sent: 6500 * ms, Accepted: 6500 * ms}, done(8*s))
		}},
		{name: "of a resource without order", change: func(h *chaos.History) {
			c, d := passed(h)
			c.Resource, d.Resource = "thing:0", "thing:0"
		}},
		{name: "of a higher priority", change: func(h *chaos.History) {
			_, d := passed(h)
			d.Priority = 1
		}},
		{name: "of a lower priority", want: early, change: func(h *chaos.History) {
			c, _ := passed(h)
			c.Priority = 1
		}},
		{name: "before one whose enqueue was not answered", change: func(h *chaos.History) {
			c, _ := passed(h)
			c.Unknown = true
		}},
		{name: "before one that was perhaps stored twice", change: func(h *chaos.History) {
			inLine(h, "c", 6*s, failed(6200*ms), done(9*s)).Accepted = 6400 * ms
			inLine(h, "d", 6500*ms, done(8*s))
		}},
		{name: "before one that an operator archived, and ran again", change: func(h *chaos.History) {
			c, _ := passed(h)
			c.RunAgain = 8500 * ms
		}},
		{name: "just after a failover", change: func(h *chaos.History) {
			passed(h)
			h.Faults = []chaos.Fault{{Kind: chaos.Failover, Start: 6 * s, End: 7 * s}}
		}},
		{name: "long after a failover", want: early, change: func(h *chaos.History) {
			passed(h)
			h.Faults = []chaos.Fault{{Kind: chaos.Failover, Start: 4 * s, End: 5 * s}}
		}},
		{name: "long before a failover", want: early, change: func(h *chaos.History) {
			passed(h)
			h.Faults = []chaos.Fault{{Kind: chaos.Failover, Start: 9500 * ms, End: 10 * s}}
		}},
		{name: "while Redis restarts with its data", want: early, change: func(h *chaos.History) {
			passed(h)
			h.Faults = []chaos.Fault{{Kind: chaos.RestartKept, Start: 7500 * ms, End: 7900 * ms}}
		}},
		{name: "after a worker was killed", want: early, change: func(h *chaos.History) {
			passed(h)
			h.Faults = []chaos.Fault{{Kind: chaos.KillWorker, Process: "w2", Start: 7500 * ms, End: 7900 * ms}}
		}},
		{name: "after the lock was deleted", change: func(h *chaos.History) {
			passed(h)
			h.Faults = []chaos.Fault{{Kind: chaos.DeleteLock, Resource: "line:0", Start: 7050 * ms, End: 7050 * ms}}
		}},
		{name: "after another lock was deleted", want: early, change: func(h *chaos.History) {
			passed(h)
			h.Faults = []chaos.Fault{{Kind: chaos.DeleteLock, Resource: "line:1", Start: 7050 * ms, End: 7050 * ms}}
		}},
		{name: "before one without retries that had lost its lock", change: func(h *chaos.History) {
			c, _ := lostAndPassed(h)
			c.Fate = chaos.FateOnce
		}},
		{name: "before one with retries that had lost its lock", want: early, change: func(h *chaos.History) { lostAndPassed(h) }},
		{name: "before one without retries that has lost nothing", want: early, change: func(h *chaos.History) {
			inLine(h, "c", 6*s, done(9*s)).Fate = chaos.FateOnce
			inLine(h, "d", 6500*ms, done(8*s))
		}},
		{name: "in a batch after it, which had lost its lock", change: func(h *chaos.History) {
			before := done(7500 * ms)
			before.Fence = done(8 * s).Fence
			c, d := inLine(h, "c", 6*s, before), inLine(h, "d", 6500*ms, done(8*s))
			h.Effects = h.Effects[:len(h.Effects)-2]
			add(h, c, done(9*s))
			add(h, d, done(10*s))
			h.Faults = []chaos.Fault{revoking(before.Fence, 7550*ms)}
			h.Faults[0].Resource = "line:0"
		}},
		{name: "before a run that had begun, and only now says so", change: func(h *chaos.History) {
			late := chaos.Run{Process: "w1", Fence: 6900, Begin: 9 * s, Returned: 9 * s, Outcome: chaos.Ended}
			inLine(h, "c", 6*s, failed(7*s), late).Fate = chaos.FateHopeless
			h.Archived["c"] = chaos.ErrOwn
			inLine(h, "d", 6500*ms, done(8*s))
			h.Processes["w1"].Stops = []chaos.Stop{{From: 6900 * ms, To: 8990 * ms}}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			h := story()
			tc.change(h)
			wantFinding(t, h, tc.want)
		})
	}
	h := story()
	inLine(h, "c", 6*s, failed(7*s), done(8*s))
	inLine(h, "d", 6500*ms, done(9*s))
	if have := chaos.Check(h).Held; have != 1 {
		t.Errorf("want one task that held its line, have %d", have)
	}
}

// A line waits for the retry of its first task, and for longer only if that may have been taken for crashed.
func TestLineThatRests(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		change func(*chaos.History)
		want   string // part of the one finding; empty for none
	}{
		{name: "for too long", change: func(*chaos.History) {}, want: "line:0 was free from 7.6s to 30s"},
		{name: "after its worker stood still", change: func(h *chaos.History) {
			h.Processes["w2"].Stops = []chaos.Stop{{From: 7050 * ms, To: 8 * s}}
		}},
		{name: "after Redis was away", change: func(h *chaos.History) { hang(h, 6500*ms, 9*s) }},
		{name: "long after Redis was away", change: func(h *chaos.History) { hang(h, 100*ms, 300*ms) }, want: "line:0 was free from 7.6s to 30s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			h := story()
			h.Concurrency = 1
			for _, p := range h.Processes {
				p.Serving = 500 * ms
			}
			inLine(h, "c", 6*s, failed(7*s), done(30*s))
			inLine(h, "d", 6500*ms, done(31*s))
			tc.change(h)
			wantFinding(t, h, tc.want)
		})
	}
}
