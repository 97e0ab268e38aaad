package chaos

import (
	"testing"
	"time"

	"github.com/sidingq/siding/queue"
)

var (
	rejects   = queue.Policy{OnBusy: queue.OnBusyReject}
	coalesces = queue.Policy{OnBusy: queue.OnBusyCoalesce}
	replaces  = queue.Policy{OnBusy: queue.OnBusyReplace}
)

// withPolicy adds a task with a policy, which is enqueued at 6 s, and its runs.
func withPolicy(id string, p queue.Policy, runs ...Run) change {
	return func(h *History) {
		add(h, &Task{ID: id, Resource: "thing", Fate: FateOK, Policy: p, Sent: 6 * s, Accepted: 6 * s}, runs...)
	}
}

// end has w1 end a task at 7 s.
func end(by queue.EventKind, id, other string) change { return endAt(by, id, other, "w1", 7*s) }

func endAt(by queue.EventKind, id, other, process string, at time.Duration) change {
	return func(h *History) {
		h.Ends = append(h.Ends, End{By: by, Task: id, Other: other, Process: process, At: at})
	}
}

// policyC gives c another policy.
func policyC(p queue.Policy) change { return func(h *History) { h.Tasks["c"].Policy = p } }

func deleted(id string) change { return func(h *History) { h.Tasks[id].Deleted = true } }

// rejected has c rejected and archived.
func rejected(runs ...Run) change {
	return func(h *History) {
		end(queue.EventRejected, "c", "")(h)
		archived("rejected: thing is held by a")(h)
		withPolicy("c", rejects, runs...)(h)
	}
}

// impatient adds task c, which may wait for a second, behind another one. A worker has room.
func impatient(runs ...Run) change {
	return func(h *History) {
		serving(ms)(h)
		add(h, &Task{ID: "z", Resource: "thing", Fate: FateOK, Sent: 5500 * ms, Accepted: 5500 * ms},
			Run{Process: "w1", Fence: 59, Begin: 5900 * ms, Returned: 10300 * ms, Outcome: Done})
		withPolicy("c", queue.Policy{MaxWait: s}, runs...)(h)
	}
}

// waitedTooLong has c archived at that time.
func waitedTooLong(at time.Duration) change {
	return func(h *History) {
		impatient()(h)
		endAt(queue.EventWaitedTooLong, "c", "", "w1", at)(h)
		archived("waited too long: for thing")(h)
	}
}

// TestCheckPolicies adds task c to the story, which ends by its policy, perhaps in favor of d.
func TestCheckPolicies(t *testing.T) {
	t.Parallel()
	const lost = "task c (ok, on \"thing\") is lost"
	coalesced := func(h *History) {
		withPolicy("c", coalesces)(h)
		end(queue.EventCoalesced, "c", "d")(h)
	}
	replaced := func(h *History) {
		withPolicy("c", replaces)(h)
		end(queue.EventReplaced, "c", "d")(h)
	}
	tooLong, archivedForIt := end(queue.EventWaitedTooLong, "c", ""), archived("waited too long: for thing")
	inNoArchive := func(h *History) { delete(h.Archived, "c") }
	sent := func(id string, at time.Duration) change { return func(h *History) { h.Tasks[id].Sent = at } }
	accepted := func(at time.Duration) change { return func(h *History) { h.Tasks["c"].Accepted = at } }
	findEach(t, story,
		with("rejected", "", rejected()),
		with("rejected, as nobody wrote down", lost, rejected(), func(h *History) { h.Ends = nil }),
		with("rejected, and archived for something else", lost, rejected(), archivedForIt),
		with("rejected, and in no archive", lost, rejected(), inNoArchive),
		with("rejected, and Redis forgot the archive", "", rejected(), inNoArchive, forget("c", 9*s, 9*s)),
		with("rejected by no policy of its own", "task c was rejected at 7s on w1, and has no such policy", rejected(), policyC(queue.Policy{MaxWait: s})),
		with("rejected as too many wait", "", rejected(), policyC(queue.Policy{MaxWaiting: 1})),
		with("rejected, and requeued, and gone", lost, rejected(), requeue("c", 9*s)),
		with("rejected, and ran", "task c was rejected at 7s on w1, and ran on w2 at 8s", rejected(done(8*s))),
		with("rejected by a worker that died, and ran", "", rejected(done(9*s)), exit("w1", 7100*ms)),
		with("rejected while Redis was away, and ran", "", rejected(done(9*s)), hang(7100*ms, 8*s)),
		with("rejected, and ran on a worker that stood still", "", rejected(done(9*s)), stop("w2", 6*s, 8900*ms)),
		with("rejected, and its client sent it again", "", rejected(done(9*s)), accepted(8*s)),
		with("rejected after it was done", "task c was rejected at 7s on w1, and had been done by w2 at 6.2s", rejected(done(6100*ms))),
		with("rejected after it was done, which Redis was not told", "", rejected(done(6100*ms)), exit("w2", 6200*ms)),
		with("rejected after it had lost its lock", "", rejected(Run{Process: "w2", Fence: 61, Begin: 6100 * ms, Returned: 6200 * ms, Outcome: Ended})),

		with("waited too long", "", waitedTooLong(7*s)),
		with("waited too long by no policy of its own", "task c was waited_too_long at 7s on w1, and has no such policy",
			withPolicy("c", replaces), tooLong, archivedForIt),
		with("waited too long, and ended as late as it may", "", waitedTooLong(10400*ms)),
		with("waited for longer than it may", "task c, which waits for 1s at most, waited from 6s to 10.6s, 1.1s longer than it may", waitedTooLong(10600*ms)),
		with("waited for longer than it may, and ran", "task c, which waits for 1s at most, waited from 6s to 10.6s", impatient(done(10600*ms))),
		with("waited for longer than it may, after a fault", "", waitedTooLong(12*s), hang(7100*ms, 8*s)),

		with("coalesced", "", coalesced, withPolicy("d", coalesces, done(8*s))),
		with("coalesced by no policy of its own", "c was coalesced at 7s on w1, and has no such policy",
			coalesced, policyC(queue.Policy{MaxWait: time.Second}), withPolicy("d", coalesces, done(8*s))),
		with("coalesced, and archived", "is archived for \"too bad\"", coalesced, archived("too bad"), withPolicy("d", coalesces, done(8*s))),
		with("coalesced into one that had run", "task c was coalesced at 7s on w1, and d did not run after it was enqueued at 6s",
			coalesced, withPolicy("d", coalesces, done(5900*ms))),
		with("coalesced into one that nobody knows", "and d did not run", coalesced),
		with("coalesced into one that was deleted", "", coalesced, withPolicy("d", coalesces), deleted("d")),
		with("coalesced into one that Redis lost", "", coalesced, withPolicy("d", coalesces), comes(Failover, 6500*ms, 7*s)),
		with("coalesced into one that waited too long", "", coalesced, withPolicy("d", queue.Policy{OnBusy: queue.OnBusyCoalesce, MaxWait: s}),
			end(queue.EventWaitedTooLong, "d", ""), func(h *History) { h.Archived["d"] = "waited too long: for thing" }),
		with("coalesced into one that was coalesced", "", coalesced,
			withPolicy("d", coalesces), end(queue.EventCoalesced, "d", "e"), withPolicy("e", coalesces, done(8*s))),
		with("coalesced into one that was coalesced into one that had run", "task c was coalesced at 7s on w1, and d did not run", coalesced,
			withPolicy("d", coalesces), sent("d", 5*s), end(queue.EventCoalesced, "d", "e"), withPolicy("e", coalesces, done(5500*ms))),
		with("coalesced in a circle, by a worker that died", "", withPolicy("c", coalesces, done(9*s)), end(queue.EventCoalesced, "c", "d"),
			exit("w1", 7100*ms), withPolicy("d", coalesces), endAt(queue.EventCoalesced, "d", "c", "w2", 8*s)),

		with("replaced", "", replaced, withPolicy("d", replaces, done(8*s))),
		with("replaced, and ran", "task c was replaced at 7s on w1, and ran on w2 at 9s",
			withPolicy("c", replaces, done(9*s)), end(queue.EventReplaced, "c", "d"), withPolicy("d", replaces, done(8*s))),
		with("replaced by one that did not run", "and d did not run", replaced, withPolicy("d", replaces, done(5900*ms))),
		with("replaced, which a killed worker did not write down", "",
			withPolicy("c", replaces), withPolicy("d", replaces, done(8*s)), kill("w1", 7*s, 7100*ms)),
		with("replaced, which a killed worker did not write down, by one that was replaced", "", withPolicy("c", replaces), sent("c", 5*s),
			withPolicy("d", replaces), end(queue.EventReplaced, "d", "e"), withPolicy("e", replaces), deleted("e"), kill("w1", 6*s, 7100*ms)),
		with("replaced, as nobody wrote down", lost, withPolicy("c", replaces), withPolicy("d", replaces, done(8*s)), kill("w1", s, 2*s)),
		with("gone when a worker was killed, and no later one ran", lost,
			withPolicy("c", replaces), withPolicy("d", replaces, done(6500*ms)), kill("w1", 7*s, 7100*ms)),
	)
}
