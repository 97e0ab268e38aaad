package chaos

import (
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/queue"
)

// revocation is a history in which an operator revokes the lease of a at 3 s. Its context ends, b goes on,
// and a runs again.
func revocation() *History {
	h := story()
	h.Runs[0].Lost, h.Runs[0].Returned, h.Runs[0].Outcome = 3400*ms, 3500*ms, Ended
	h.Effects = h.Effects[1:]
	add(h, h.Tasks["a"], Run{Process: "w1", Fence: 30, Begin: 6 * s, Returned: 7 * s, Outcome: Done})
	h.Faults = []Fault{revoking(10, 3*s)}
	return h
}

func revoking(fence int64, at time.Duration) Fault {
	return Fault{Kind: RevokeLease, Resource: "thing", Start: at, End: at + 10*ms, Revocations: []Revocation{
		{Outcome: WasRevoked, Fence: fence, Start: at, End: at + 10*ms},
	}}
}

// goesOn has a's handler go on until then, and the rest come after that.
func goesOn(until time.Duration) change {
	return func(h *History) {
		h.Runs[0].Lost, h.Runs[0].Returned = until, until+100*ms
		h.Runs[1].Begin, h.Runs[1].Returned = until+200*ms, until+300*ms
		h.Runs[2].Begin, h.Runs[2].Returned = until+2*s, until+3*s
	}
}

// ends says what becomes of a's first run.
func ends(lost, returned time.Duration, o Outcome) change {
	return func(h *History) { h.Runs[0].Lost, h.Runs[0].Returned, h.Runs[0].Outcome = lost, returned, o }
}

// revoke revokes a lease as well.
func revoke(fence int64, at time.Duration) change { return fault(revoking(fence, at)) }

// found says how the last revocation ended.
func found(o Revoked) change {
	return func(h *History) { h.Faults[len(h.Faults)-1].Revocations[0].Outcome = o }
}

// TestRevocations changes the history in one way and wants that found, and nothing else.
func TestRevocations(t *testing.T) {
	t.Parallel()
	noAnswer := func(h *History) {
		h.Faults[0].Revocations[0] = Revocation{Outcome: WasNoAnswer, Start: 3 * s, End: 3 * s}
	}
	lower := func(h *History) { h.Runs[1].Fence, h.Effects[0].Fence = 9, 9 }
	notAgain := func(h *History) { h.Runs = h.Runs[:2] }
	hasEffect := func(h *History) { // of its first run
		h.Runs[0].Outcome = Done
		h.Effects = []Effect{{Task: "a", Resource: "thing", Fence: 10}, {Task: "b", Resource: "thing", Fence: 20}}
	}
	noEffect := func(h *History) { h.Effects = h.Effects[:1] }
	retried := func(h *History) { h.Runs[2].Retried = 1 }
	findEach(t, revocation,
		with("nothing", ""),
		with("two holders", "two hold thing from 3.2s to 3.4s: a on w1 (fence 10) and b on w2 (fence 20)", begins(3200*ms)),

		with("the holder is told late", "", goesOn(4600*ms)),
		with("the holder is told too late", "task a on w1 believed in its lock of thing until 4.7s, 23.333334ms longer than it may: its lease (fence 10) was revoked from 3s to 3.01s",
			goesOn(4700*ms)),
		with("a batch is told too late", "task c2 on w2 believed in its lock of line:0 until 8.8s, 73.333334ms longer than it may", func(h *History) {
			first, second := done(7*s), done(7200*ms)
			second.Fence, second.Lost, second.Returned, second.Outcome = first.Fence, 8800*ms, 8900*ms, Ended
			inLine(h, "c1", 5*s, first)
			inLine(h, "c2", 5100*ms, second, done(9*s))
			revoke(first.Fence, 7050*ms)(h)
			h.Faults[1].Resource = "line:0"
		}),
		with("the holder is never told", "task a on w1 believed in its lock of thing until 9s", goesOn(9*s), ends(0, 9*s, Ended)),
		with("the holder was done before it could notice", "", ends(0, 3050*ms, Ended)),
		with("the holder is killed", "", ends(0, 0, ""), exit("w1", 3200*ms), func(h *History) { h.Runs[2].Process = "w2" }),
		with("the call had no answer", "", noAnswer, goesOn(9*s)),
		with("the holder begins after it, and is told too late", "until 4.7s, 23", goesOn(4700*ms), func(h *History) {
			h.Faults = []Fault{revoking(10, 1*s)}
			h.Runs[0].Begin = 3010 * ms
		}),
		with("the holder stood still", "", goesOn(5*s), stop("w1", 2900*ms, 3500*ms)),
		with("the holder stood still, and was told too late", "until 5.2s, 33.333334ms longer", goesOn(5200*ms), stop("w1", 2900*ms, 3500*ms)),
		with("another worker stood still", "until 5s", goesOn(5*s), stop("w2", 2900*ms, 3500*ms)),
		with("the holder stood still before", "until 5s", goesOn(5*s), stop("w1", 2100*ms, 2900*ms)),
		with("Redis was away", "", goesOn(6*s), hang(3100*ms, 5*s)),
		with("Redis was away, and the holder went on beyond its lease", "until 6.1s, 90ms longer", goesOn(6100*ms), hang(3100*ms, 5*s)),
		with("Redis was away later", "until 5s", goesOn(5*s), hang(4900*ms, 5*s)),
		with("a script cache was flushed", "until 5s", goesOn(5*s), comes(FlushScripts, 3100*ms, 3200*ms)),
		with("a failover forgot the revocation", "", goesOn(9*s), comes(Failover, 3100*ms, 5*s)),

		with("the next holder has a lower fence", "after a revocation, thing was given to b with fence 9, below 10 of a before it", lower),
		with("the next holder has the same fence", "fence 10 of thing was given to a on w1 and b on w2", func(h *History) { h.Runs[1].Fence = 10 }),
		with("the next holder was granted its lock long ago, and stood still", "", lower, stop("w2", 1*s, 3*s)),
		with("the next holder began late, and the key of its lock was deleted before", "", lower, deleteLock("thing", 2*s)),
		with("the next holder has a lower fence, and the key of another lock was deleted", "after a revocation, thing was given to b", lower, deleteLock("other", 2*s)),

		with("the task used a retry", "task a lost its lock to an operator after 0 retries, and ran again at 6s after 1", retried),
		with("the task used a retry before", "", retried, func(h *History) { h.Runs[0].Retried = 1 }),
		with("the task crashed too often", "", retried, requeue("a", 4*s), requeue("a", 4*s), requeue("a", 4*s)),
		with("the task has its effect, and did not run again", "task a lost its lock to an operator at 3.4s, and did not run again", notAgain, hasEffect),
		with("the task did not run again", "task a (ok, on \"thing\") is lost", notAgain, noEffect, func(h *History) { h.Archived["a"] = "lost thing after 1.4 s" }),
		with("the task has its effect, and was replaced before it ran again", "", notAgain, hasEffect,
			func(h *History) { h.Tasks["a"].Policy = replaces }, endAt(queue.EventReplaced, "a", "b", "w2", 3900*ms)),
		with("the task was deleted", "", notAgain, noEffect, deleted("a")),
		with("the task was done after its context had ended, and ran again", "", func(h *History) { h.Runs[0].Outcome = Done }),
		with("the task was done before it could notice, and ran again", "", ends(0, 3050*ms, Done)),

		with("a task was done, and ran again", "task b was done by w2 at 5s, and ran again on w2 at 8s", repeat),
		with("a task was done, and ran again after a revocation of another lease", "task b was done by w2", repeat, revoke(19, 4500*ms)),
		with("a task was done, and ran again after a revocation found another holder", "task b was done by w2", repeat, revoke(0, 4500*ms), found(WasOthers)),
		with("a task was done, and its lease was revoked", "", repeat, revoke(20, 4900*ms)),
		with("a task was done, and its lease may have been revoked", "", repeat, revoke(0, 4900*ms), found(WasNoAnswer)),
		with("a task was done, and may have been enqueued again", "", repeat, func(h *History) { h.Tasks["b"].Accepted = 4100 * ms }),
		with("a task was done, and Redis was away", "", repeat, hang(5500*ms, 6*s)),
		with("a task was done, and Redis was away later", "task b was done by w2", repeat, hang(6500*ms, 7*s)),
		with("a task was done, and its lock was deleted", "", repeat, fault(Fault{Kind: DeleteLock, Resource: "thing", Start: 4500 * ms, End: 4500*ms + 1})),
		with("a task was done, and its worker stood still", "", repeat, stop("w2", 4500*ms, 4800*ms)),
		with("a task was done, and was requeued", "", repeat, requeue("b", 7*s)),

		with("the resource stands idle", "", idle(8*s)),
		with("the resource stands idle for too long", "thing was free from 3.4s to 8.1s while 1 of its tasks waited, 90ms longer than it may be; before it: lease of a running task revoked", idle(8100*ms)),
		with("another resource stands idle", "thing was free from 3.4s to 8s", idle(8*s), func(h *History) { h.Faults[0].Resource = "other" }),
	)
}

// repeat has b run again, although it was done.
func repeat(h *History) {
	h.Runs = append(h.Runs, Run{Task: "b", Process: "w2", Resource: "thing", Fence: 40, Begin: 8 * s, Returned: 9 * s, Outcome: Done})
}

// idle has b wait until then, and a worker that is free.
func idle(until time.Duration) change {
	return func(h *History) {
		serving(500 * ms)(h)
		h.Concurrency = 9
		h.Runs[0].Begin = 1 * s
		h.Runs[1].Begin, h.Runs[1].Returned = until, until+100*ms
		h.Runs[2].Begin, h.Runs[2].Returned = until+200*ms, until+300*ms
		h.Tasks["a"].RunAgain = until // a does not wait as well
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
				task := &Task{ID: "r" + string(rune('0'+n)), Resource: "thing", Accepted: begin}
				h.Faults = append(h.Faults, revoking(fence, begin+1*s-10*ms))
				add(h, task,
					Run{Process: "w1", Fence: fence, Begin: begin, Lost: begin + 1*s + held, Returned: begin + 3*s, Outcome: Ended},
					Run{Process: "w1", Fence: fence + 1, Begin: begin + 5*s, Returned: begin + 6*s, Outcome: Done})
			}
			expect.Same(t, "times", Check(h).Told, tc.holds)
			wantFinding(t, h, tc.want)
		})
	}
}
