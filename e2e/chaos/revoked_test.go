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

// revocation is a history in which an operator revokes the lease of a at 3 s. Its context ends, b goes on,
// and a runs again.
func revocation() *chaos.History {
	h := story()
	h.Runs[0].Lost, h.Runs[0].Returned, h.Runs[0].Outcome = 3400*ms, 3500*ms, chaos.Ended
	h.Effects = h.Effects[1:]
	add(h, h.Tasks["a"], chaos.Run{Process: "w1", Fence: 30, Begin: 6 * s, Returned: 7 * s, Outcome: chaos.Done})
	h.Faults = []chaos.Fault{revoking(10, 3*s)}
	return h
}

func revoking(fence int64, at time.Duration) chaos.Fault {
	return chaos.Fault{Kind: chaos.RevokeLease, Resource: "thing", Start: at, End: at + 10*ms, Revocations: []chaos.Revocation{
		{Outcome: chaos.WasRevoked, Fence: fence, Start: at, End: at + 10*ms},
	}}
}

// goesOn has a's handler go on until then, and the rest come after that.
func goesOn(h *chaos.History, until time.Duration) {
	h.Runs[0].Lost, h.Runs[0].Returned = until, until+100*ms
	h.Runs[1].Begin, h.Runs[1].Returned = until+200*ms, until+300*ms
	h.Runs[2].Begin, h.Runs[2].Returned = until+2*s, until+3*s
}

// TestRevocations changes the history in one way and wants that found, and nothing else.
func TestRevocations(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		change func(*chaos.History)
		want   string // part of the one finding; empty for none
	}{
		{name: "nothing", change: func(*chaos.History) {}},
		{name: "two holders", want: "two hold thing from 3.2s to 3.4s: a on w1 (fence 10) and b on w2 (fence 20)", change: func(h *chaos.History) {
			h.Runs[1].Begin = 3200 * ms
		}},

		{name: "the holder is told late", change: func(h *chaos.History) { goesOn(h, 4600*ms) }},
		{name: "the holder is told too late", want: "task a on w1 believed in its lock of thing until 4.7s, 23.333334ms longer than it may: its lease (fence 10) was revoked from 3s to 3.01s", change: func(h *chaos.History) { goesOn(h, 4700*ms) }},
		{name: "a batch is told too late", want: "task c2 on w2 believed in its lock of line:0 until 8.8s, 73.333334ms longer than it may", change: func(h *chaos.History) {
			first, second := done(7*s), done(7200*ms)
			second.Fence, second.Lost, second.Returned, second.Outcome = first.Fence, 8800*ms, 8900*ms, chaos.Ended
			inLine(h, "c1", 5*s, first)
			inLine(h, "c2", 5100*ms, second, done(9*s))
			h.Faults = append(h.Faults, revoking(first.Fence, 7050*ms))
			h.Faults[1].Resource = "line:0"
		}},
		{name: "the holder is never told", want: "task a on w1 believed in its lock of thing until 9s", change: func(h *chaos.History) {
			goesOn(h, 9*s)
			h.Runs[0].Lost, h.Runs[0].Returned = 0, 9*s
		}},
		{name: "the holder was done before it could notice", change: func(h *chaos.History) {
			h.Runs[0].Lost, h.Runs[0].Returned = 0, 3050*ms
		}},
		{name: "the holder is killed", change: func(h *chaos.History) {
			h.Runs[0].Lost, h.Runs[0].Returned, h.Runs[0].Outcome = 0, 0, ""
			h.Processes["w1"].Exited = 3200 * ms
			h.Runs[2].Process = "w2"
		}},
		{name: "the call had no answer", change: func(h *chaos.History) {
			h.Faults[0].Revocations[0] = chaos.Revocation{Outcome: chaos.WasNoAnswer, Start: 3 * s, End: 3 * s}
			goesOn(h, 9*s)
		}},
		{name: "the holder begins after it, and is told too late", want: "until 4.7s, 23", change: func(h *chaos.History) {
			h.Faults = []chaos.Fault{revoking(10, 1*s)}
			h.Runs[0].Begin = 3010 * ms
			goesOn(h, 4700*ms)
		}},
		{name: "the holder stood still", change: func(h *chaos.History) {
			goesOn(h, 5*s)
			h.Processes["w1"].Stops = []chaos.Stop{{From: 2900 * ms, To: 3500 * ms}}
		}},
		{name: "the holder stood still, and was told too late", want: "until 5.2s, 33.333334ms longer", change: func(h *chaos.History) {
			goesOn(h, 5200*ms)
			h.Processes["w1"].Stops = []chaos.Stop{{From: 2900 * ms, To: 3500 * ms}}
		}},
		{name: "another worker stood still", want: "until 5s", change: func(h *chaos.History) {
			goesOn(h, 5*s)
			h.Processes["w2"].Stops = []chaos.Stop{{From: 2900 * ms, To: 3500 * ms}}
		}},
		{name: "the holder stood still before", want: "until 5s", change: func(h *chaos.History) {
			goesOn(h, 5*s)
			h.Processes["w1"].Stops = []chaos.Stop{{From: 2100 * ms, To: 2900 * ms}}
		}},
		{name: "Redis was away", change: func(h *chaos.History) {
			goesOn(h, 6*s)
			hang(h, 3100*ms, 5*s)
		}},
		{name: "Redis was away, and the holder went on beyond its lease", want: "until 6.1s, 90ms longer", change: func(h *chaos.History) {
			goesOn(h, 6100*ms)
			hang(h, 3100*ms, 5*s)
		}},
		{name: "Redis was away later", want: "until 5s", change: func(h *chaos.History) {
			goesOn(h, 5*s)
			hang(h, 4900*ms, 5*s)
		}},
		{name: "a script cache was flushed", want: "until 5s", change: func(h *chaos.History) {
			goesOn(h, 5*s)
			h.Faults = append(h.Faults, chaos.Fault{Kind: chaos.FlushScripts, Start: 3100 * ms, End: 3200 * ms})
		}},
		{name: "a failover forgot the revocation", change: func(h *chaos.History) {
			goesOn(h, 9*s)
			h.Faults = append(h.Faults, chaos.Fault{Kind: chaos.Failover, Start: 3100 * ms, End: 5 * s})
		}},

		{name: "the next holder has a lower fence", want: "after a revocation, thing was given to b with fence 9, below 10 of a before it", change: func(h *chaos.History) {
			h.Runs[1].Fence, h.Effects[0].Fence = 9, 9
		}},
		{name: "the next holder has the same fence", want: "fence 10 of thing was given to a on w1 and b on w2", change: func(h *chaos.History) {
			h.Runs[1].Fence = 10
		}},
		{name: "the next holder was granted its lock long ago, and stood still", change: func(h *chaos.History) {
			h.Runs[1].Fence, h.Effects[0].Fence = 9, 9
			h.Processes["w2"].Stops = []chaos.Stop{{From: 1 * s, To: 3 * s}}
		}},
		{name: "the next holder began late, and the key of its lock was deleted before", change: func(h *chaos.History) {
			h.Runs[1].Fence, h.Effects[0].Fence = 9, 9
			h.Faults = append(h.Faults, chaos.Fault{Kind: chaos.DeleteLock, Resource: "thing", Start: h.Runs[0].Begin, End: h.Runs[0].Begin})
		}},
		{name: "the next holder has a lower fence, and the key of another lock was deleted", want: "after a revocation, thing was given to b", change: func(h *chaos.History) {
			h.Runs[1].Fence, h.Effects[0].Fence = 9, 9
			h.Faults = append(h.Faults, chaos.Fault{Kind: chaos.DeleteLock, Resource: "other", Start: h.Runs[0].Begin, End: h.Runs[0].Begin})
		}},

		{name: "the task used a retry", want: "task a lost its lock to an operator after 0 retries, and ran again at 6s after 1", change: func(h *chaos.History) {
			h.Runs[2].Retried = 1
		}},
		{name: "the task used a retry before", change: func(h *chaos.History) {
			h.Runs[0].Retried, h.Runs[2].Retried = 1, 1
		}},
		{name: "the task crashed too often", change: func(h *chaos.History) {
			h.Runs[2].Retried = 1
			h.Requeued = []chaos.Requeued{{Task: "a", At: 4 * s}, {Task: "a", At: 4 * s}, {Task: "a", At: 4 * s}}
		}},
		{name: "the task has its effect, and did not run again", want: "task a lost its lock to an operator at 3.4s, and did not run again", change: func(h *chaos.History) {
			h.Runs = h.Runs[:2]
			h.Runs[0].Outcome = chaos.Done
			h.Effects = []chaos.Effect{{Task: "a", Resource: "thing", Fence: 10}, {Task: "b", Resource: "thing", Fence: 20}}
		}},
		{name: "the task did not run again", want: "task a (ok, on \"thing\") is lost", change: func(h *chaos.History) {
			h.Runs, h.Effects = h.Runs[:2], h.Effects[:1]
			h.Archived["a"] = "lost thing after 1.4 s"
		}},
		{name: "the task has its effect, and was replaced before it ran again", change: func(h *chaos.History) {
			h.Runs = h.Runs[:2]
			h.Runs[0].Outcome = chaos.Done
			h.Effects = []chaos.Effect{{Task: "a", Resource: "thing", Fence: 10}, {Task: "b", Resource: "thing", Fence: 20}}
			h.Tasks["a"].Policy = replaces
			h.Ends = []chaos.End{{By: queue.EventReplaced, Task: "a", Other: "b", Process: "w2", At: 3900 * ms}}
		}},
		{name: "the task was deleted", change: func(h *chaos.History) {
			h.Runs, h.Effects = h.Runs[:2], h.Effects[:1]
			h.Tasks["a"].Deleted = true
		}},
		{name: "the task was done after its context had ended, and ran again", change: func(h *chaos.History) {
			h.Runs[0].Outcome = chaos.Done
		}},
		{name: "the task was done before it could notice, and ran again", change: func(h *chaos.History) {
			h.Runs[0].Outcome, h.Runs[0].Lost, h.Runs[0].Returned = chaos.Done, 0, 3050*ms
		}},

		{name: "a task was done, and ran again", want: "task b was done by w2 at 5s, and ran again on w2 at 8s", change: repeat},
		{name: "a task was done, and ran again after a revocation of another lease", want: "task b was done by w2", change: func(h *chaos.History) {
			repeat(h)
			h.Faults = append(h.Faults, revoking(19, 4500*ms))
		}},
		{name: "a task was done, and ran again after a revocation found another holder", want: "task b was done by w2", change: func(h *chaos.History) {
			repeat(h)
			h.Faults = append(h.Faults, revoking(0, 4500*ms))
			h.Faults[1].Revocations[0].Outcome = chaos.WasOthers
		}},
		{name: "a task was done, and its lease was revoked", change: func(h *chaos.History) {
			repeat(h)
			h.Faults = append(h.Faults, revoking(20, 4900*ms))
		}},
		{name: "a task was done, and its lease may have been revoked", change: func(h *chaos.History) {
			repeat(h)
			h.Faults = append(h.Faults, revoking(0, 4900*ms))
			h.Faults[1].Revocations[0].Outcome = chaos.WasNoAnswer
		}},
		{name: "a task was done, and may have been enqueued again", change: func(h *chaos.History) {
			repeat(h)
			h.Tasks["b"].Accepted = 4100 * ms
		}},
		{name: "a task was done, and Redis was away", change: func(h *chaos.History) {
			repeat(h)
			hang(h, 5500*ms, 6*s)
		}},
		{name: "a task was done, and Redis was away later", want: "task b was done by w2", change: func(h *chaos.History) {
			repeat(h)
			hang(h, 6500*ms, 7*s)
		}},
		{name: "a task was done, and its lock was deleted", change: func(h *chaos.History) {
			repeat(h)
			h.Faults = append(h.Faults, chaos.Fault{Kind: chaos.DeleteLock, Resource: "thing", Start: 4500 * ms, End: 4500*ms + 1})
		}},
		{name: "a task was done, and its worker stood still", change: func(h *chaos.History) {
			repeat(h)
			h.Processes["w2"].Stops = []chaos.Stop{{From: 4500 * ms, To: 4800 * ms}}
		}},
		{name: "a task was done, and was requeued", change: func(h *chaos.History) {
			repeat(h)
			h.Requeued = []chaos.Requeued{{Task: "b", At: 7 * s}}
		}},

		{name: "the resource stands idle", change: func(h *chaos.History) { idle(h, 8*s) }},
		{name: "the resource stands idle for too long", want: "thing was free from 3.4s to 8.1s while 1 of its tasks waited, 90ms longer than it may be; before it: lease of a running task revoked", change: func(h *chaos.History) {
			idle(h, 8100*ms)
		}},
		{name: "another resource stands idle", want: "thing was free from 3.4s to 8s", change: func(h *chaos.History) {
			idle(h, 8*s)
			h.Faults[0].Resource = "other"
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			h := revocation()
			tc.change(h)
			wantFinding(t, h, tc.want)
		})
	}
}

// repeat has b run again, although it was done.
func repeat(h *chaos.History) {
	h.Runs = append(h.Runs, chaos.Run{Task: "b", Process: "w2", Resource: "thing", Fence: 40, Begin: 8 * s, Returned: 9 * s, Outcome: chaos.Done})
}

// idle has b wait until then, and a worker that is free.
func idle(h *chaos.History, until time.Duration) {
	h.Concurrency = 9
	for _, p := range h.Processes {
		p.Serving = 500 * ms
	}
	h.Runs[0].Begin = 1 * s
	h.Runs[1].Begin, h.Runs[1].Returned = until, until+100*ms
	h.Runs[2].Begin, h.Runs[2].Returned = until+200*ms, until+300*ms
	h.Tasks["a"].RunAgain = until // a does not wait as well
}

// The report says what became of the revocations. Those that hit no running task show little.
func TestRevocationsAreCounted(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*chaos.History){
		"ended a context":                              func(*chaos.History) {},
		"revoked a lease that was lost before":         func(h *chaos.History) { h.Runs[0].Lost = 2900 * ms },
		"revoked the lease of a worker that died":      func(h *chaos.History) { h.Runs[0].Lost, h.Runs[0].Returned, h.Processes["w1"].Exited = 0, 0, 3500*ms },
		"revoked a lease under which no handler began": func(h *chaos.History) { h.Faults[0].Revocations[0].Fence = 11 },
		"found the lock free":                          func(h *chaos.History) { h.Faults[0].Revocations[0].Outcome = chaos.WasFree },
		"had no answer":                                func(h *chaos.History) { h.Faults[0].Revocations[0].Outcome = chaos.WasNoAnswer },
		"revoked a lease whose handler had returned": func(h *chaos.History) {
			h.Runs[0].Lost, h.Runs[0].Returned, h.Runs[0].Outcome = 0, 2900*ms, chaos.Done
		},
		"revoked a lease whose handler returned before it could notice": func(h *chaos.History) {
			h.Runs[0].Lost, h.Runs[0].Outcome = 0, chaos.Done
		},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			h := revocation()
			change(h)
			have := chaos.Check(h)
			if diff := cmp.Diff(map[string]int{want: 1}, have.Revoked); diff != "" || !strings.Contains(have.Summary(h), "1 revocations: "+want+"\n") {
				t.Errorf("counts (-want +have):\n%s\n%s", diff, have.Summary(h))
			}
		})
	}
}

// Half of the holders must notice at their next renewal. One that noticed at its deadline only would
// be in time, too.
func TestHoldersAreTold(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		holds []time.Duration
		want  string
	}{
		{name: "soon", holds: []time.Duration{0, 100 * ms, 600 * ms, 1500 * ms, 1500 * ms}},
		{name: "too few to say", holds: []time.Duration{1500 * ms, 1500 * ms}},
		{name: "late", holds: []time.Duration{0, 100 * ms, 700 * ms, 1500 * ms, 1500 * ms}, want: "of 5 holders of revoked leases, half went on for 700ms or longer"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			h := story()
			for n, held := range tc.holds {
				begin := time.Duration(n+1) * 10 * s
				fence := int64(100 * (n + 1))
				task := &chaos.Task{ID: "r" + string(rune('0'+n)), Resource: "thing", Accepted: begin}
				h.Faults = append(h.Faults, revoking(fence, begin+1*s-10*ms))
				add(h, task,
					chaos.Run{Process: "w1", Fence: fence, Begin: begin, Lost: begin + 1*s + held, Returned: begin + 3*s, Outcome: chaos.Ended},
					chaos.Run{Process: "w1", Fence: fence + 1, Begin: begin + 5*s, Returned: begin + 6*s, Outcome: chaos.Done})
			}
			have := chaos.Check(h)
			if diff := cmp.Diff(tc.holds, have.Told); diff != "" {
				t.Errorf("times (-want +have):\n%s", diff)
			}
			if tc.want == "" && len(have.Wrong) > 0 || tc.want != "" && (len(have.Wrong) != 1 || !strings.Contains(have.Wrong[0], tc.want)) {
				t.Errorf("want %q, have %q", tc.want, have.Wrong)
			}
		})
	}
}

// Only holders that nothing else put off say when holders are told.
func TestToldWithoutDisturbance(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*chaos.History){
		"stood still":      func(h *chaos.History) { h.Processes["w1"].Stops = []chaos.Stop{{From: 3100 * ms, To: 3200 * ms}} },
		"Redis was away":   func(h *chaos.History) { hang(h, 3100*ms, 3200*ms) },
		"ended before":     func(h *chaos.History) { h.Runs[0].Lost = 2900 * ms },
		"done before that": func(h *chaos.History) { h.Runs[0].Lost, h.Runs[0].Outcome = 0, chaos.Done },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := revocation()
			change(h)
			if have := chaos.Check(h); len(have.Told) > 0 || len(have.Wrong) > 0 {
				t.Errorf("want no times and no findings, have %v and %q", have.Told, have.Wrong)
			}
		})
	}
	h := revocation()
	h.Faults[0].Revocations = slices.Repeat(h.Faults[0].Revocations, 2) // by two operators
	if have := chaos.Check(h); !slices.Equal(have.Told, []time.Duration{390 * ms}) {
		t.Errorf("want one time, have %v", have.Told)
	}
}
