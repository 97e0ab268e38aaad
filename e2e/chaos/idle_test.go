package chaos

import (
	"slices"
	"testing"
	"time"

	"github.com/sidingq/siding/queue"
)

// standstill has two workers with room for one task each. Task b waits for a until 2 s, and then until it begins.
func standstill(begins time.Duration) func() *History {
	return func() *History {
		h := story()
		serving(500 * ms)(h)
		h.Runs[0].Begin, h.Runs[0].Returned = 1*s, 2*s
		h.Runs[1].Begin, h.Runs[1].Returned = begins, begins+1*s
		for _, p := range h.Processes {
			p.Exited = 100 * s
		}
		return h
	}
}

// serving has the workers take one task at a time, from then on.
func serving(since time.Duration) change {
	return func(h *History) {
		h.Concurrency = 1
		for _, p := range h.Processes {
			p.Serving = since
		}
	}
}

// waiter is a task that waits with b from the beginning and runs after it.
func waiter(id string) change {
	return func(h *History) {
		n := int64(len(h.Tasks))
		last := h.Runs[len(h.Runs)-1]
		add(h, &Task{ID: id, Resource: "thing", Accepted: 1 * s},
			Run{Process: "w2", Fence: 10 * (n + 1), Begin: last.Returned, Returned: last.Returned + 100*ms, Outcome: Done})
	}
}

// once has b run on w1 before, from 2 s to 3 s.
func once(o Outcome) change {
	return func(h *History) {
		add(h, h.Tasks["b"], Run{Process: "w1", Fence: 15, Begin: 2 * s, Returned: 3 * s, Outcome: o})
	}
}

// lostThrice has b lose its lock in three short runs, after a has ended.
func lostThrice(h *History) {
	for n, begin := range []time.Duration{2 * s, 3 * s, 5 * s} {
		add(h, h.Tasks["b"], Run{Process: "w1", Fence: 12 + int64(n), Begin: begin, Returned: begin + 1*s, Outcome: Ended})
	}
}

func TestIdle(t *testing.T) {
	t.Parallel()
	b := func(change func(b *Task)) change { return func(h *History) { change(h.Tasks["b"]) } }
	needParts := func(h *History) {
		for i, resource := range []string{queue.AllOf("part:0", "part:1"), queue.AllOf("part:2", "part:3")} {
			h.Tasks[h.Runs[i].Task].Resource, h.Runs[i].Resource, h.Effects[i].Resource = resource, resource, ""
		}
	}
	busy := func(worker, id string, begin time.Duration) change { // with a task of its own, until 9 s
		return added(Task{ID: id}, Run{Process: worker, Begin: begin, Returned: 9 * s, Outcome: Done})
	}
	serves := func(from time.Duration) change { // w2, after w1 has gone
		return func(h *History) { h.Processes["w1"].Exited, h.Processes["w2"].Serving = 2*s, from }
	}
	neverBegins := func(h *History) { h.Runs, h.Effects = h.Runs[:1], h.Effects[:1] }
	failover := func(to time.Duration) change { return comes(Failover, 1500*ms, to) }
	for _, tc := range []struct {
		begins time.Duration // when b does
		row
	}{
		{2100 * ms, with("b goes on at once", "")},
		{6 * s, with("b goes on in time", "")},
		{6100 * ms, with("b goes on too late", "thing was free from 2s to 6.1s while 1 of its tasks waited, 100ms longer than it may be; before it: no fault; the last to explain it: no fault")},
		{7 * s, with("two wait", "from 2s to 7s while 2 of its tasks waited", waiter("c"))},
		{8 * s, with("b is enqueued late", "", b(func(b *Task) { b.Accepted = 5 * s }))},
		{10 * s, with("another has the resource meanwhile", "",
			added(Task{ID: "c", Resource: "thing", Accepted: 4 * s}, Run{Process: "w1", Fence: 15, Begin: 5 * s, Returned: 6500 * ms, Outcome: Done}))},

		{9 * s, with("a and b need other parts", "part:* was free from 2s to 9s", needParts)},
		{9 * s, with("somebody has another part meanwhile", "", needParts, func(h *History) { h.Runs[0].Returned = 8500 * ms })},
		{9 * s, with("all workers are busy", "", busy("w1", "c", 2*s), busy("w2", "d", 1*s))},
		{9 * s, with("one worker is busy", "from 2s to 9s", busy("w1", "c", 2*s))},
		{9 * s, with("all workers are busy, each with room for one more", "from 2s to 9s", busy("w1", "c", 2*s), busy("w2", "d", 1*s), func(h *History) { h.Concurrency = 2 })},
		{9 * s, with("no worker serves yet", "", serves(8*s))},
		{9 * s, with("a worker serves", "from 4s to 9s", serves(4*s))},
		{9 * s, with("one worker is gone, the other one stopped", "", waiter("c"), waiter("d"), exit("w1", 2*s), stop("w2", 2100*ms, 8900*ms))},

		{9 * s, with("b is deleted, or may be", "", b(func(b *Task) { b.Deleted = true }))},
		{9 * s, with("b is archived", "", b(func(b *Task) { b.Shelved = true }))},
		{9 * s, with("b was archived and run again", "", b(func(b *Task) { b.RunAgain = 6 * s }))},
		{9 * s, with("b was archived and run again, and waits too long", "from 3s to 9s", b(func(b *Task) { b.RunAgain = 3 * s }))},
		{9 * s, with("b's enqueue was not answered", "", b(func(b *Task) { b.Unknown = true }))},
		{9 * s, with("b is forgotten soon", "", neverBegins, forget("b", 5*s, 7*s))},
		{9 * s, with("b is forgotten after too long", "from 2s to 8s", neverBegins, forget("b", 8*s, 9*s))},
		{9 * s, with("b ended by its policy", "", neverBegins, coalesced(5*s), forget("b", 12*s, 13*s))},
		{9 * s, with("b ended by its policy after too long", "from 2s to 8s", neverBegins, coalesced(8*s), forget("b", 12*s, 13*s))},
		{20 * s, with("b ended by its policy, and its worker died", "", coalesced(5*s), requeue("b", 19*s))},

		{40 * s, with("b failed by itself and rests", "", b(func(b *Task) { b.Fate = FateFlaky }), once(Failed))},
		{40 * s, with("b could not write to the ledger and rests", "", once(Broken))},
		{9 * s, with("b lost its lock", "from 3s to 9s", once(Ended))},
		{13 * s, with("b lost its lock three times, and comes by itself after more than four seconds", "", lostThrice)},
		{13200 * ms, with("b lost its lock three times, and comes too late", "from 9.15s to 13.2s", lostThrice)},
		{40 * s, with("b lost its lock three times, and was then taken for crashed once too often", "", lostThrice, func(h *History) { h.Runs[1].Retried = 1 })},
		{9 * s, with("b was refused by the ledger", "from 3s to 9s", once(Stale))},
		{12 * s, with("b lost its lock and is acknowledged late", "", once(Ended), hang(2500*ms, 4*s))}, // acknowledged at 8 s
		{13 * s, with("b lost its lock, was acknowledged late, and waits too long", "from 8s to 13s", once(Ended), hang(2500*ms, 4*s))},
		{10 * s, with("b lost its lock while a queue was paused", "from 3s to 10s", once(Ended), comes(PauseQueue, 2500*ms, 4*s))},
		{10 * s, with("b lost its lock long after Redis was away", "from 3s to 10s", once(Ended), hang(500*ms, 900*ms))},

		{6500 * ms, with("a's worker is killed, b goes on in time", "", killed)},
		{6600 * ms, with("a's worker is killed, b goes on too late", "from 1.5s to 6.6s while 1 of its tasks waited, 100ms longer than it may be; before it: worker killed (kill -9), from 1.5s to 2s; the last to explain it: worker killed", killed)},
		{26500 * ms, with("only a waits, whose worker was killed", "", onlyCrashed)},
		{28 * s, with("only a waits, whose worker was killed, for too long", "from 1.5s to 28s while 1 of its tasks waited, of dead workers only", onlyCrashed)},
		{28 * s, with("a was requeued", "", onlyCrashed, requeue("a", 25*s))},
		{25 * s, with("a was requeued and waits for too long", "from 20s to 25s while 1 of its tasks waited", onlyCrashed, requeue("a", 20*s))},
		{90 * s, with("a crashed so often that it is left to asynq", "", onlyCrashed, requeue("a", 400*ms), requeue("a", 200*ms), requeue("a", 300*ms))},
		{30 * s, with("a's worker is killed, and nothing goes on", "from 1.5s to 30s while 1 of its tasks waited,", killed, func(h *History) {
			h.Requeued, h.Runs[2].Begin, h.Runs[2].Returned = nil, 31*s, 32*s
		})},
		{45 * s, with("only a waits, and a fault comes", "", onlyCrashed, hang(20*s, 22*s))},
		{2100 * ms, with("a was done, which Redis was not told", "", requeue("a", 20*s), func(h *History) {
			h.Runs = append(h.Runs, Run{Task: "a", Process: "w1", Resource: "thing", Fence: 50, Begin: 20 * s, Returned: 21 * s, Outcome: Done})
		})},
		{23 * s, with("b was taken by a worker that was cut off", "", requeue("b", 20*s))},
		{20 * s, with("b was taken by a worker that was cut off, and began before its requeue was written down", "", requeue("b", 20*s+6*ms))},
		{20 * s, with("b was requeued long after it began", "from 2s to 20s", requeue("b", 22*s))},

		{9 * s, with("b begins during a fault", "", hang(1500*ms, 10*s))},
		{12 * s, with("b begins soon after a fault", "", hang(1500*ms, 7*s))},
		{13 * s, with("b begins long after a fault", "from 2s to 13s while 1 of its tasks waited, 1s longer than it may be; before it: Redis stopped for 1 to 4 s (SIGSTOP), from 1.5s to 7s", hang(1500*ms, 7*s))},
		{9 * s, with("a fault comes while b waits", "", hang(5*s, 7*s))},
		{9 * s, with("a fault comes after b has waited for too long", "from 2s to 9s", hang(6500*ms, 7*s))},
		{14 * s, with("a second fault comes in time", "", hang(1500*ms, 4*s), hang(8900*ms, 9*s))},
		{14 * s, with("a second fault comes too late", "from 2s to 14s while 1 of its tasks waited, 5s longer", hang(1500*ms, 4*s), hang(10*s, 11*s))},
		{12 * s, with("a fault ends within another one", "", hang(1500*ms, 7*s), hang(2*s, 3*s))},
		{13 * s, with("a fault ends within another one, long ago", "the last to explain it: Redis stopped for 1 to 4 s (SIGSTOP), from 1.5s to 7s", hang(1500*ms, 7*s), hang(2*s, 3*s))},
		{9 * s, with("a script cache is flushed", "2s longer than it may be; before it: no fault; the last to explain it: SCRIPT FLUSH", comes(FlushScripts, 3*s, 3*s))},
		{12 * s, with("a queue is paused for long", "", comes(PauseQueue, 1900*ms, 8*s))},
		{12500 * ms, with("a queue was paused long ago", "500ms longer", comes(PauseQueue, 1900*ms, 8*s))},
		{7 * s, with("the lock is deleted", "", deleteLock("thing", 3*s))},
		{7 * s, with("another lock is deleted", "explain it: no fault", deleteLock("other", 3*s))},
		{9500 * ms, with("a master is killed", "", failover(5*s))},
		{10 * s, with("a master is killed, b begins too late", "500ms longer", failover(5*s))},
		{13 * s, with("a master is killed, and replaced late", "", failover(12*s))},

		{6500 * ms, with("a's worker is stopped, b and c go on in time", "", waiter("c"), stoppedInA)},
		{7 * s, with("a's worker is stopped, b and c go on too late", "from 1.5s to 7s", waiter("c"), stoppedInA)},
		{9 * s, with("the stopped worker may have taken b", "", stoppedInA)},
	} {
		findEach(t, standstill(tc.begins), tc.row)
	}
}

// killed kills a's worker in it. a is requeued and runs after b.
func killed(h *History) {
	h.Runs[0].Returned, h.Runs[0].Outcome, h.Processes["w1"].Exited = 0, "", 1500*ms
	h.Effects = h.Effects[1:]
	add(h, h.Tasks["a"], Run{Process: "w2", Fence: 50, Begin: 17 * s, Returned: 18 * s, Outcome: Done})
	requeue("a", 16*s)(h)
	kill("w1", 1500*ms, 2*s)(h)
}

// onlyCrashed does so without b. Nobody is seen to put a back; it runs when b would.
func onlyCrashed(h *History) {
	killed(h)
	begins := h.Runs[1].Begin
	delete(h.Tasks, "b")
	h.Runs, h.Effects = slices.Delete(h.Runs, 1, 2), h.Effects[1:]
	h.Runs[1].Begin, h.Runs[1].Returned = begins, begins+1*s
	h.Requeued = nil
}

// stoppedInA stops a's worker in it, until 8 s. a runs again after b and c.
func stoppedInA(h *History) {
	stopped(1500*ms, 8*s, 8100*ms)(h)
	h.Runs[0].Lost, h.Runs[0].Outcome = 8100*ms, Ended
	h.Effects = h.Effects[1:]
	add(h, h.Tasks["a"], Run{Process: "w2", Fence: 50, Begin: 10500 * ms, Returned: 11 * s, Outcome: Done})
}

// coalesced has b end by its policy, as c waits.
func coalesced(at time.Duration) change {
	return func(h *History) {
		h.Tasks["b"].Policy = coalesces
		h.Ends = []End{{By: queue.EventCoalesced, Task: "b", Other: "c", Process: "w1", At: at}}
		h.Tasks["c"] = &Task{ID: "c", Deleted: true}
	}
}
