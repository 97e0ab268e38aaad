package chaos

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/sidingq/siding/queue"
)

const mergedPrefix = "merged:"

// merged are resources whose tasks all coalesce, or replace each other.
func merged() []string { return numbered(mergedPrefix, 2) }

// IsMerged reports whether a resource is one of those. Few of its tasks run.
func IsMerged(resource string) bool { return strings.HasPrefix(resource, mergedPrefix) }

// merging are the policies of tasks that want a merged resource, others those of some other tasks.
var (
	merging = []queue.Policy{
		{OnBusy: queue.OnBusyCoalesce},
		{OnBusy: queue.OnBusyCoalesce, MaxWait: time.Second},
		{OnBusy: queue.OnBusyReplace},
		{OnBusy: queue.OnBusyReplace, MaxWaiting: 3},
	}
	others = []queue.Policy{
		{OnBusy: queue.OnBusyReject},
		{MaxWait: 2 * time.Second},
		{MaxWaiting: 20},
		{MaxWait: 5 * time.Second, MaxWaiting: 200},
	}
)

// drawWait draws the policy and the priority of a guarded task.
func drawWait(r *rand.Rand, t *Task, o *queue.Options) {
	if r.IntN(4) == 0 {
		t.Priority = r.IntN(queue.MaxPriority + 1)
		o.Priority = t.Priority
	}
	switch {
	case IsMerged(t.Resource):
		t.Policy = merging[r.IntN(len(merging))]
	case IsLine(t.Resource):
		t.Policy = inOrder
	case r.IntN(25) == 0:
		t.Policy = slices.Concat(others, merging)[r.IntN(len(others)+len(merging))]
	default:
		return
	}
	o.Policy = &t.Policy
}

// An End says that a worker ended a task by its policy. The worker says so before Redis knows of
// it. If a task was replaced, the worker says so just after.
type End struct {
	By      queue.EventKind
	Task    string
	Other   string // the task that is to run in its place, if there is one
	Process string
	At      time.Duration
}

// lastErrors are those of tasks that are archived at such an end. At others the task is deleted.
var lastErrors = map[queue.EventKind]error{queue.EventRejected: queue.ErrRejected, queue.EventWaitedTooLong: queue.ErrMaxWait}

// mayEnd reports whether a policy may end a task so.
func mayEnd(p queue.Policy, by queue.EventKind) bool {
	switch by {
	case queue.EventRejected:
		return p.OnBusy == queue.OnBusyReject || p.MaxWaiting > 0
	case queue.EventCoalesced:
		return p.OnBusy == queue.OnBusyCoalesce || p.OnBusy == queue.OnBusyReplace // the earlier of two
	case queue.EventReplaced:
		return p.OnBusy == queue.OnBusyReplace
	default:
		return p.MaxWait > 0
	}
}

// checkEnds checks what the workers ended by policies.
func (c *checker) checkEnds() {
	for _, id := range slices.Sorted(maps.Keys(c.ends)) {
		t := c.Tasks[id]
		for _, e := range c.ends[id] {
			if t == nil || !mayEnd(t.Policy, e.By) {
				c.wrong("task %s was %s at %v on %s, and has no such policy", id, e.By, e.At, e.Process)
				continue
			}
			if e.Other != "" && !c.ranInstead(t, e) {
				c.wrong("task %s was %s at %v on %s, and %s did not run after it was enqueued at %v", id, e.By, e.At, e.Process, e.Other, t.Sent)
			}
			c.checkEnd(t, e)
		}
	}
}

// checkEnd checks that a task did not run after its end, and had not been done before. An earlier run may
// have failed, or lost its lock. If the worker died, or had no answer, the end may not be known to
// Redis. The task then runs, or ends again.
func (c *checker) checkEnd(t *Task, e End) {
	storedAgain := t.Unknown || t.Accepted > e.At
	if storedAgain || t.Shelved || t.RunAgain != 0 || len(c.requeues[t.ID]) > 0 || c.mayRepeat(Run{Process: e.Process, Resource: t.Resource, Begin: e.At, Returned: e.At}) {
		return
	}
	for _, r := range c.byTask[t.ID] {
		switch {
		case r.Begin > e.At && !c.stoodStill(r.Process, max(e.At, r.Begin-noise), r.Begin):
			c.wrong("task %s was %s at %v on %s, and ran on %s at %v", t.ID, e.By, e.At, e.Process, r.Process, r.Begin)
		case r.Begin <= e.At && r.Outcome == Done && !c.mayRepeat(r):
			c.wrong("task %s was %s at %v on %s, and had been done by %s at %v", t.ID, e.By, e.At, e.Process, r.Process, r.Returned)
		}
	}
}

// ranInstead reports whether the task that was to run in place of t ran after t was enqueued. That task
// may have ended by its policy in favor of yet another one, or for reasons by which it never runs.
func (c *checker) ranInstead(t *Task, e End) bool {
	seen := make(map[string]bool)
	for id := e.Other; c.Tasks[id] != nil && !seen[id]; {
		seen[id] = true
		o := c.Tasks[id]
		switch ends := c.ends[id]; {
		case slices.ContainsFunc(c.byTask[id], func(r Run) bool { return r.Begin >= t.Sent }):
			return true
		case o.Unknown, o.Deleted, o.Shelved, strings.Contains(c.Archived[id], "lease expired"), c.forgetting(o) != nil, c.unwritten(o):
			return true
		case len(ends) == 0:
			return false
		case ends[len(ends)-1].Other == "":
			return true
		default:
			id = ends[len(ends)-1].Other
		}
	}
	return false
}

// endedByPolicy reports whether a task has ended by its policy, and did not come back.
func (c *checker) endedByPolicy(t *Task) bool {
	last, archived := c.Archived[t.ID]
	return c.unwritten(t) || slices.ContainsFunc(c.ends[t.ID], func(e End) bool {
		if slices.ContainsFunc(c.requeues[t.ID], func(at time.Duration) bool { return at > e.At+noise }) {
			return false // its worker had died
		}
		if text := lastErrors[e.By]; text != nil {
			return archived && strings.HasPrefix(last, text.Error()+": ")
		}
		return !archived
	})
}

// unwritten reports whether a fault may have kept the journal from saying that a task was replaced. The
// worker that deletes the task says so once it has the answer. The task that replaced it has run then, or it came
// later and has ended in another way, perhaps as this one has.
func (c *checker) unwritten(t *Task) bool {
	if _, archived := c.Archived[t.ID]; archived || t.Policy.OnBusy != queue.OnBusyReplace || len(c.ends[t.ID]) > 0 {
		return false
	}
	return slices.ContainsFunc(c.Faults, func(f Fault) bool {
		cuts := f.Kind.away() || f.Kind == KillWorker || f.Kind == StopWorker || f.Kind == RollingStart
		return cuts && f.End+noise >= t.Sent && c.replacedSince(t, max(f.Start, t.Sent))
	})
}

// replacedSince reports whether a task that replaces others is known to have waited for the resource of t since then.
func (c *checker) replacedSince(t *Task, since time.Duration) bool {
	for _, o := range c.Tasks {
		if o == t || o.Resource != t.Resource || o.Policy.OnBusy != queue.OnBusyReplace {
			continue
		}
		if slices.ContainsFunc(c.byTask[o.ID], func(r Run) bool { return r.Begin >= since }) {
			return true
		}
		later := o.Sent > t.Sent
		ended := slices.ContainsFunc(c.ends[o.ID], func(e End) bool { return e.At >= since })
		if later && (ended || o.Deleted || c.unwritten(o)) {
			return true
		}
	}
	return false
}
