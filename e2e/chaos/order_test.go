package chaos

import (
	"slices"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
)

// inLine adds a task of a line, and its runs.
func inLine(h *History, id string, sent time.Duration, runs ...Run) *Task {
	t := &Task{ID: id, Queue: "q", Resource: "line:0", Fate: FateTwice, Sent: sent, Accepted: sent + ms}
	add(h, t, runs...)
	return t
}

// line is inLine, as a change.
func line(id string, sent time.Duration, runs ...Run) change {
	return func(h *History) { inLine(h, id, sent, runs...) }
}

// passed has d, which was sent after c, begin while c waits for its retry.
func passed(h *History) {
	inLine(h, "c", 6*s, failed(7*s), done(9*s))
	inLine(h, "d", 6500*ms, done(8*s))
}

// lostAndPassed has d begin after c has lost its lock, and before c comes again.
func lostAndPassed(h *History) {
	lost := failed(7 * s)
	lost.Lost, lost.Outcome = 7050*ms, Ended
	inLine(h, "c", 6*s, lost, done(9*s))
	inLine(h, "d", 6500*ms, done(8*s))
}

// passedUnnoticed is lostAndPassed, but c is on w1 first, and notices only after d has begun.
func passedUnnoticed(h *History) {
	lostAndPassed(h)
	run := &h.Runs[slices.IndexFunc(h.Runs, func(r Run) bool { return r.Task == "c" })]
	run.Process, run.Lost, run.Returned = "w1", 8100*ms, 8100*ms
}

// doneAndPassed has d begin after c is done, and before c comes again.
func doneAndPassed(h *History) {
	inLine(h, "c", 6*s, done(7*s), done(9*s))
	h.Effects = h.Effects[:len(h.Effects)-1] // the second time finds it done
	inLine(h, "d", 6500*ms, done(8*s))
}

// inBatch has c and d done in one batch, where d begins at a time, and then again, as an operator has taken their lock at another.
func inBatch(second, revoked time.Duration) change {
	return func(h *History) {
		first := done(7500 * ms)
		first.Fence = done(second).Fence
		c, d := inLine(h, "c", 6*s, first), inLine(h, "d", 6500*ms, done(second))
		h.Effects = h.Effects[:len(h.Effects)-2]
		add(h, c, done(11*s))
		add(h, d, done(12*s))
		h.Faults = []Fault{revoking(first.Fence, revoked)}
		h.Faults[0].Resource = "line:0"
	}
}

// TestCheckOrder adds tasks of a line to the story.
func TestCheckOrder(t *testing.T) {
	t.Parallel()
	const early = "task d began on w2 at 8s, before c, accepted at 6.001s, which ran on w2 at 9s and was to end first"
	of := func(id string, change func(*Task)) change { return func(h *History) { change(h.Tasks[id]) } }
	onceC := of("c", func(c *Task) { c.Fate = FateOnce })
	d := line("d", 6500*ms, done(8*s))
	findEach(t, story,
		with("in order", "", line("c", 6*s, failed(7*s), failed(7500*ms), done(8*s)), line("d", 6500*ms, done(9*s))),
		with("while the one before it waits for its retry", early, passed),
		with("before the one before it", early, line("c", 6*s, done(9*s)), d),
		with("before the one before that", early, passed, line("between", 6100*ms), of("between", func(t *Task) { t.Deleted = true })),
		with("before one that came at the same time", "", passed,
			of("c", func(c *Task) { c.Accepted = 6600 * ms }), of("d", func(d *Task) { d.Sent = 6400 * ms })),
		with("before one of another queue", "", passed, of("c", func(c *Task) { c.Queue = "other" })),
		with("before one of another line", "", line("c", 6*s, failed(7*s), done(9*s)),
			added(Task{ID: "d", Queue: "q", Resource: "line:1", Sent: 6500 * ms, Accepted: 6500 * ms}, done(8*s))),
		with("of a resource without order", "", passed,
			of("c", func(c *Task) { c.Resource = "thing:0" }), of("d", func(d *Task) { d.Resource = "thing:0" })),
		with("of a higher priority", "", passed, of("d", func(d *Task) { d.Priority = 1 })),
		with("of a lower priority", early, passed, of("c", func(c *Task) { c.Priority = 1 })),
		with("before one whose enqueue was not answered", "", passed, of("c", func(c *Task) { c.Unknown = true })),
		with("before one that was perhaps stored twice", "",
			line("c", 6*s, failed(6200*ms), done(9*s)), of("c", func(c *Task) { c.Accepted = 6400 * ms }), d),
		with("before one that an operator archived, and ran again", "", passed, of("c", func(c *Task) { c.RunAgain = 8500 * ms })),

		with("just after a failover", "", passed, comes(Failover, 6*s, 7*s)),
		with("long after a failover", early, passed, comes(Failover, 4*s, 5*s)),
		with("long before a failover", early, passed, comes(Failover, 9500*ms, 10*s)),
		with("while Redis restarts with its data", early, passed, comes(RestartKept, 7500*ms, 7900*ms)),
		with("after a worker was killed", early, passed, kill("w2", 7500*ms, 7900*ms)),
		with("after the lock was deleted", "", passed, deleteLock("line:0", 7050*ms)),
		with("after another lock was deleted", early, passed, deleteLock("line:1", 7050*ms)),
		with("before one without retries that had lost its lock", "", lostAndPassed, onceC),
		with("before one with retries that had lost its lock", early, lostAndPassed),
		with("before one without retries that had lost its lock as it stood still", "", passedUnnoticed, onceC, stop("w1", 7050*ms, 8050*ms), fault(Fault{Kind: StopWorker, Process: "w1", Start: 7050 * ms, End: 8050 * ms})),
		with("before one with retries that had lost its lock as it stood still", early, passedUnnoticed, stop("w1", 7050*ms, 8050*ms), fault(Fault{Kind: StopWorker, Process: "w1", Start: 7050 * ms, End: 8050 * ms})),
		with("before one without retries that ended unheard", "", doneAndPassed, onceC, hang(6500*ms, 7900*ms)),
		with("before one with retries that ended unheard", early, doneAndPassed, hang(6500*ms, 7900*ms)),
		with("before one without retries that has lost nothing", early, line("c", 6*s, done(9*s)), onceC, d),
		with("in a batch after it, which had lost its lock", "", inBatch(8*s, 7550*ms)),
		with("in a batch that lost its lock long after it was done", "", inBatch(9500*ms, 9*s)),
		with("in a batch that lost its lock long before it began, as Redis was away", "", inBatch(9500*ms, 7550*ms), hang(7600*ms, 8*s)),
		with("before a run that had begun, and only now says so", "",
			line("c", 6*s, failed(7*s), Run{Process: "w1", Fence: 6900, Begin: 9 * s, Returned: 9 * s, Outcome: Ended}),
			of("c", func(c *Task) { c.Fate = FateHopeless }), archived(ErrOwn), d, stop("w1", 6900*ms, 8990*ms)),
	)
	h := story()
	inLine(h, "c", 6*s, failed(7*s), done(8*s))
	inLine(h, "d", 6500*ms, done(9*s))
	expect.Equal(t, "tasks that held their line", Check(h).Held, 1)
}

// A line waits for the retry of its first task, and for longer only if that may have been taken for crashed.
func TestLineThatRests(t *testing.T) {
	t.Parallel()
	rests := func() *History {
		h := story()
		serving(500 * ms)(h)
		inLine(h, "c", 6*s, failed(7*s), done(30*s))
		inLine(h, "d", 6500*ms, done(31*s))
		return h
	}
	unheard := func(retried int) change { // c has done its work, and begins again
		return func(h *History) {
			first, next := len(h.Runs)-3, len(h.Runs)-2
			h.Runs[first].Outcome, h.Runs[next].Retried = Done, retried
		}
	}
	findEach(t, rests,
		with("for too long", "line:0 was free from 7.6s to 30s"),
		with("as nobody heard how it had ended, and it had crashed too often", "", unheard(1), hang(6500*ms, 9*s)),
		with("as nobody heard how it had ended", "line:0 was free from 7.1s to 30s", unheard(0), hang(6500*ms, 9*s)),
		with("after its worker stood still", "", stop("w2", 7050*ms, 8*s)),
		with("after Redis was away", "", hang(6500*ms, 9*s)),
		with("long after Redis was away", "line:0 was free from 7.6s to 30s", hang(100*ms, 300*ms)),
	)
}
