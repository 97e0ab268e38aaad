package chaos

import (
	"testing"
	"time"

	"github.com/sidingq/siding/queue"
)

// inPool adds runs that begin so, and last for 5 ms.
func inPool(begin ...time.Duration) change {
	return func(h *History) {
		for i, at := range begin {
			h.Runs = append(h.Runs, Run{Task: "p", Process: "w1", Resource: "pool:0", Fence: int64(at/us) + int64(i), Begin: at, Returned: at + 5*ms, Outcome: Ended})
		}
	}
}

// starts adds runs on the pool, one after the other.
func starts(count int, every time.Duration) change {
	return func(h *History) {
		for i := range count {
			inPool(9*s + time.Duration(i)*every)(h)
		}
	}
}

// paused has an operator pause the thing.
func paused(since, until time.Duration) change {
	return fault(Fault{Kind: OverrideLimit, Resource: "thing", Start: since, End: until, Hits: 1, Override: &Override{Since: since, Until: until}})
}

// need has a need these resources, and adds c, which begins before a ends and needs those.
func need(these, those string) change {
	return func(h *History) {
		h.Tasks["a"].Resource, h.Runs[0].Resource, h.Effects[0].Resource = these, these, ""
		h.Tasks["c"] = &Task{ID: "c", Resource: those, Fate: FateOK, Accepted: s}
		h.Runs = append(h.Runs, Run{Task: "c", Process: "w2", Resource: those, Fence: 30, Begin: 2500 * ms, Returned: 2600 * ms, Outcome: Done})
		h.Effects = append(h.Effects, Effect{Task: "c"})
	}
}

func effect(task string, fence int64) change {
	return func(h *History) { h.Effects = append(h.Effects, Effect{Task: task, Resource: "thing", Fence: fence}) }
}

// begins has b begin then.
func begins(at time.Duration) change { return func(h *History) { h.Runs[1].Begin = at } }

// stopped has w1 stand still in a. Its handler returns then.
func stopped(from, to, returns time.Duration) change {
	return func(h *History) {
		stop("w1", from, to)(h)
		fault(Fault{Kind: StopWorker, Process: "w1", Start: from, End: to})(h)
		h.Runs[0].Returned = returns
	}
}

func TestCheckFinds(t *testing.T) {
	t.Parallel()
	twoAllowed := fault(Fault{Kind: OverrideLimit, Resource: "pool:0", Hits: 1, Override: &Override{Holders: 2, Since: 6 * s, Until: 10 * s}})
	refused := func(h *History) { // by the ledger
		archived("has seen fence 31, refused the older 30")(h)
		h.Runs = append(h.Runs, Run{Task: "c", Process: "w1", Resource: "thing", Fence: 30, Begin: 6500 * ms, Returned: 7500 * ms, Outcome: Stale})
	}
	expired := archived("asynq: task lease expired")
	sameFence := func(h *History) { h.Runs[1].Fence = 10 }
	findEach(t, story,
		with("nothing", ""),

		with("one more holder than the limit", "4 hold pool:0 at 9s, which has a limit of 3", inPool(9*s, 9*s, 9*s, 9*s)),
		with("as many holders as the limit", "", inPool(9*s, 9*s, 9*s)),
		with("one more holder, of whose permit Redis lost the data", "", inPool(9*s, 9*s, 9*s, 9*s), comes(Failover, 8*s, 9*s)),
		with("two who need one resource in common", "two hold part:1 from 2.5s to 2.6s: a on w1 (fence 10) and c on w2 (fence 30)",
			need(queue.AllOf("part:0", "part:1"), queue.AllOf("part:1", "part:2"))),
		with("two who need nothing in common", "", need(queue.AllOf("part:0", "part:1"), queue.AllOf("part:2", "part:3"))),
		with("more starts than the rate", "pool:0 had 5 starts in 200ms, and at most 4 are allowed in 500ms", starts(5, 50*ms)),
		with("as many starts as the rate", "", starts(40, 170*ms)),
		with("more starts than the rate, as Redis lost its data", "", starts(5, 50*ms), comes(RestartEmpty, 9100*ms, 9100*ms)),

		with("a start while the resource is paused", "task b started on thing at 4s as holder 1, and an operator allowed 0 from 1.5s to 5s", paused(1500*ms, 5*s)),
		with("a start before all servers know of the pause", "", paused(2500*ms, 5*s)),
		with("a start after the end of the pause", "", paused(s, 3500*ms)),
		with("a start while the resource is paused, after a stop of a worker", "", paused(1500*ms, 5*s), stop("w1", s, 3500*ms)),
		with("a start while the resource is paused, after a worker was stopped that knew of it", "task b started on thing at 4s",
			paused(1500*ms, 5*s), stop("w1", 3600*ms, 3900*ms)),
		with("a start while the resource is paused, after Redis stood still", "", paused(1500*ms, 5*s), hang(2*s, 3*s)),
		with("a start while the resource is paused, after a failover just then", "", paused(1500*ms, 5*s), comes(Failover, 2*s, 2500*ms)),
		with("a start while the resource is paused, after a failover that comes later", "task b started on thing at 4s",
			paused(500*ms, 5*s), comes(Failover, 2600*ms, 3*s)),
		with("a start while the resource is paused, after Redis lost all", "", paused(500*ms, 5*s), comes(RestartEmpty, 2600*ms, 3*s)),
		with("one more holder than an operator allows", "task p started on pool:0 at 9s as holder 3, and an operator allowed 2",
			inPool(9*s, 9*s, 9*s), twoAllowed),
		with("as many holders as an operator allows", "", inPool(9*s, 9*s), twoAllowed),

		with("a task without an effect", "task c (ok, on \"thing\") is lost", taskC(Task{Accepted: s})),
		with("a task whose enqueue was not answered", "", taskC(Task{Unknown: true})),
		with("a task that an operator deleted", "", taskC(Task{Deleted: true})),
		with("a task that an operator archived", "", taskC(Task{Shelved: true}), archived("")),
		with("a task that an operator archived, and ran again, and is gone", "task c", taskC(Task{Shelved: true})),
		with("a task archived because it waited", "task c", taskC(Task{Fate: FateOnce}), archived("waiting for thing")),
		with("a task archived for its own failure", "", taskC(Task{Fate: FatePermanent}), archived(ErrOwn+": skip retry for the task")),
		with("a task with retries archived for its own failure", "task c", taskC(Task{Fate: FateFlaky}), archived(ErrOwn)),
		with("a task without retries whose worker died in it", "", taskC(Task{Fate: FateOnce}), expired, func(h *History) {
			h.Runs = append(h.Runs, Run{Task: "c", Process: "w1", Resource: "thing", Fence: 30, Begin: 59 * s})
		}),
		with("a task without retries whose worker died when it was about to begin", "", taskC(Task{Fate: FateOnce}), expired, func(h *History) {
			h.Started = map[string]bool{"c": true}
		}),
		with("a task without retries archived before it began", "task c", taskC(Task{Fate: FateOnce}), expired),
		with("a task that Redis forgot when it was restarted empty", "", taskC(Task{Accepted: 6 * s}), forget("c", 7*s, 8*s)),
		with("a task that was lost before Redis was restarted empty", "task c", taskC(Task{Accepted: 6 * s}), forget("d", 7*s, 8*s)),
		with("a task that was accepted after Redis was restarted empty", "task c", taskC(Task{Accepted: 9 * s}), comes(RestartEmpty, 7*s, 8*s)),
		with("a task accepted when the master died", "", taskC(Task{Accepted: 6900 * ms}), comes(Failover, 7*s, 8*s)),
		with("a task taken out of the archive when the master died", "",
			taskC(Task{Accepted: 2 * s, RunAgain: 7100 * ms}), archived("waiting for thing"), comes(Failover, 7*s, 8*s)),
		with("a task taken out of the archive when the master died, and lost", "task c",
			taskC(Task{Accepted: 2 * s, RunAgain: 7100 * ms}), comes(Failover, 7*s, 8*s)),
		with("a task accepted long before the master died", "task c", taskC(Task{Accepted: 2 * s}), comes(Failover, 7*s, 8*s)),
		with("a task refused by the ledger after a failover forgot its lock", "task c",
			taskC(Task{Fate: FateOnce, Accepted: 2 * s}), refused, comes(StopMaster, 7*s, 8*s)),
		with("a task refused by the ledger and archived for it", "task c", taskC(Task{Fate: FateOnce, Accepted: 2 * s}), refused),
		with("a task lost when Redis was restarted with its data", "task c", taskC(Task{Accepted: 6900 * ms}), comes(RestartKept, 7*s, 8*s)),

		with("an effect written twice", "task b has 2 effects", effect("b", 21)),
		with("an effect of a task that is not known", "effect of task c, which nobody enqueued", effect("c", 21)),
		with("an effect of a task without a run", "effect of task b, of which no run is known", func(h *History) { h.Runs = h.Runs[:1] }),
		with("an effect of a task that fails", "task b, which always fails, has an effect", func(h *History) { h.Tasks["b"].Fate = FateHopeless }),
		with("a success without an effect", "task b was done by w2 at 5s, but has no effect", func(h *History) {
			h.Tasks["b"].Deleted = true
			h.Effects = h.Effects[:1]
		}),

		with("an effect after that of a higher fence", "the effect of b on thing has fence 9, that of a before it 10", func(h *History) { h.Effects[1].Fence = 9 }),
		with("effects of one fence", "the effect of b on thing has fence 10, that of a before it 10", func(h *History) { h.Effects[1].Fence = 10 }),
		with("a fence given out twice", "fence 10 of thing was given to a on w1 and b on w2", sameFence),
		with("a fence of two masters", "", sameFence, func(h *History) { h.Effects[1].Fence = 10 }, comes(StopMaster, 1500*ms, 4500*ms)),
		with("a fence given out twice by one Redis", "fence 10 of thing was given to a on w1 and b on w2", sameFence, comes(RestartEmpty, 1500*ms, 4500*ms)),
		with("a fence given out twice, before there were two masters", "fence 10 of thing was given to a on w1 and b on w2",
			sameFence, comes(StopMaster, 2500*ms, 4500*ms)),

		with("two holders", "two hold thing from 2.9s to 3s: a on w1 (fence 10) and b on w2 (fence 20)", begins(2900*ms)),
		with("a holder that was told in time", "", begins(2900*ms), func(h *History) { h.Runs[0].Lost = 2800 * ms }),
		with("a holder that died", "", begins(2900*ms), exit("w1", 2800*ms), func(h *History) { h.Runs[0].Returned = 0 }),
		with("two holders, of which one stood still", "", stopped(2100*ms, 4900*ms, 5*s), func(h *History) { h.Runs[0].Lost = 5 * s }),
		with("a holder that believes in its lock long after it stood still", "task a on w1 believed in its lock for 2.1s", stopped(2100*ms, 4900*ms, 7*s)),
		with("a holder that was stopped again before it could notice", "", stopped(2100*ms, 4900*ms, 7*s), stop("w1", 4910*ms, 6500*ms),
			func(h *History) { h.Faults[0].End = 6500 * ms }),
		with("a holder that was stopped time and again, and renewed its lock in between", "", func(h *History) {
			h.Runs[0].Returned, h.Runs[1].Begin, h.Runs[1].Returned = 7*s, 7100*ms, 8*s
			for at := 2100 * ms; at < 4900*ms; at += 400 * ms {
				stop("w1", at, at+300*ms)(h)
			}
		}),
		with("two holders after the lock was deleted", "", begins(2900*ms), deleteLock("thing", 2800*ms)),
		with("two holders after another lock was deleted", "two hold thing", begins(2900*ms), deleteLock("other", 2800*ms)),
		with("two holders after a failover", "", begins(2900*ms), comes(Failover, 2500*ms, 2800*ms)),
		with("two holders long after a failover", "two hold thing", comes(Failover, 1*s, 2*s), func(h *History) {
			h.Runs[0].Returned, h.Runs[1].Begin, h.Runs[1].Returned = 13*s, 12*s, 14*s
		}),
		with("two holders while Redis restarts with its data", "two hold thing", begins(2900*ms), comes(RestartKept, 2500*ms, 2800*ms)),

		with("a worker that panicked", "worker w2: panic", func(h *History) { h.Processes["w2"].Crash = "panic" }),
		with("a key that is kept for ever", "key without expiry: lock:thing", func(h *History) { h.Forever = []string{"lock:thing"} }),
	)
}
