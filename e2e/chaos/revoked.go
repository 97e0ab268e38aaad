package chaos

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// told is how long the holder of a revoked lease may go on, until its next renewal, and a bit.
var told = locks.RenewEvery + TTL/12

const (
	// several is how many contexts must have ended so for their median to count.
	several = 3
	// losses is how many lost locks of a task use no retry by default.
	losses = 10
)

// checkRevocations checks what became of the leases that operators revoked.
func (c *checker) checkRevocations() {
	type lease struct {
		resource string
		fence    int64
	}
	seen := make(map[lease]bool) // another operator may revoke a lease once more
	for i := range c.Faults {
		f := &c.Faults[i]
		for _, call := range f.Revocations {
			r, ok := c.revoked(f, call)
			if l := (lease{f.Resource, call.Fence}); ok && !seen[l] {
				seen[l] = true
				c.checkTold(r, call)
				c.checkNext(r)
				c.checkAgain(r, call)
			}
		}
	}
	slices.Sort(c.Told)
	if n := len(c.Told); n >= several && c.Told[n/2] > told {
		c.wrong("of %d holders of revoked leases, half went on for %v or longer, want at most %v", n, c.Told[n/2], told)
	}
}

// revoked returns the run whose lease the call ended, of a batch that of its last task, and when the first one began. There is
// none if the lease is not known, or no handler began under it.
func (c *checker) revoked(f *Fault, call Revocation) (Run, bool) {
	if call.Outcome != WasRevoked || call.Fence == 0 {
		return Run{}, false
	}
	runs := c.byResource[f.Resource]
	i := slices.IndexFunc(runs, func(r Run) bool { return r.Fence == call.Fence })
	if i < 0 {
		return Run{}, false
	}
	last := runs[i]
	for _, r := range runs[i+1:] {
		if oneBatch(last, r) {
			r.Begin = last.Begin
			last = r
		}
	}
	return last, true
}

// checkTold checks that the holder of a revoked lease did not go on for long. Without an answer of
// Redis the holder goes on until its deadline. Without a processor, until it has one again.
func (c *checker) checkTold(r Run, call Revocation) {
	since := max(call.End, r.Begin)
	due, disturbed := since+told+noise, false
	for _, s := range c.Processes[r.Process].Stops { // by their start
		if s.From < due && call.Start < s.To {
			due, disturbed = due+max(0, s.To-max(s.From, since)), true
		}
	}
	for _, f := range c.Faults {
		if !f.Kind.away() || f.Start >= due || f.End+noise <= call.Start {
			continue
		}
		if f.Kind.trait().loses {
			return // the revocation as well
		}
		due, disturbed = max(due, since+TTL+noise), true
	}
	if end := c.believed(r); end > due {
		c.wrong("task %s on %s believed in its lock of %s until %v, %v longer than it may: its lease (fence %d) was revoked from %v to %v",
			r.Task, r.Process, r.Resource, end, end-due, r.Fence, call.Start, call.End)
	}
	if r.Lost >= call.Start && !disturbed {
		c.Told = append(c.Told, max(0, r.Lost-since))
	}
}

// checkNext checks that all later holders have higher fences. A process that stood still may begin
// with a lease that ended long ago. After a fault that lets two hold at once, the one with the lower
// fence may begin last.
func (c *checker) checkNext(r Run) {
	for _, next := range c.byResource[r.Resource] {
		if next.Begin > r.Begin && next.Fence < r.Fence && !c.stoodStill(next.Process, r.Begin-TTL, next.Begin) && c.overlap(next, r) == nil {
			c.wrong("after a revocation, %s was given to %s with fence %d, below %d of %s before it", r.Resource, next.Task, next.Fence, r.Fence, r.Task)
			return
		}
	}
}

// stoodStill reports whether a process was stopped between two times.
func (c *checker) stoodStill(process string, from, to time.Duration) bool {
	return slices.ContainsFunc(c.Processes[process].Stops, func(s Span) bool { return s.From < to && from < s.To })
}

// checkAgain checks that a task runs again after its lease was revoked, and that this used no retry.
func (c *checker) checkAgain(r Run, call Revocation) {
	t := c.Tasks[r.Task]
	if t == nil || r.Lost < call.Start || r.Returned < r.Lost {
		return // done before it could notice, or its worker died
	}
	later := slices.IndexFunc(c.byTask[r.Task], func(next Run) bool { return next.Begin > r.Begin && next.Fence != r.Fence })
	_, archived := c.Archived[r.Task]
	switch {
	case later >= 0:
		// A task that crashed or lost its lock too often uses a retry.
		if next := c.byTask[r.Task][later]; next.Retried > r.Retried && len(c.requeues[r.Task]) < tolerated && later <= losses {
			c.wrong("task %s lost its lock to an operator after %d retries, and ran again at %v after %d", r.Task, r.Retried, next.Begin, next.Retried)
		}
	case t.Deleted, t.Shelved, archived, c.forgotten(r.Task), c.forgetting(t) != nil, c.endedByPolicy(t):
		// For these [checker.checkTasks] knows what is allowed.
	default:
		c.wrong("task %s lost its lock to an operator at %v, and did not run again", r.Task, r.Lost)
	}
}

// checkRepeats looks for guarded tasks that ran again although they were done, without a reason.
func (c *checker) checkRepeats() {
	for _, id := range slices.Sorted(maps.Keys(c.byTask)) {
		t, runs := c.Tasks[id], c.byTask[id]
		if len(runs) < 2 || t == nil || t.Resource == "" || t.Shelved || t.RunAgain != 0 || len(c.requeues[id]) > 0 {
			continue
		}
		for i, r := range runs[1:] {
			before := runs[i]
			storedAgain := t.Unknown || t.Accepted > before.Begin // its client sent the enqueue again
			if before.Outcome == Done && !storedAgain && !c.mayRepeat(before) {
				c.wrong("task %s was done by %s at %v, and ran again on %s at %v", id, before.Process, before.Returned, r.Process, r.Begin)
			}
		}
	}
}

// mayRepeat reports whether a run that was done may have lost its lock before it returned, or may
// not have been acknowledged. The runs of a batch have one lock, and its tasks end when all of them have returned.
func (c *checker) mayRepeat(r Run) bool {
	begin, end, lost := r.Begin-noise, r.Returned+noise, r.Lost != 0
	for _, other := range c.byResource[r.Resource] {
		if oneBatch(r, other) {
			begin, end, lost = min(begin, other.Begin-noise), max(end, other.Returned+noise), lost || other.Lost != 0
		}
	}
	if lost || c.Processes[r.Process].Exited < end || c.stoodStill(r.Process, begin, end) {
		return true
	}
	return slices.ContainsFunc(c.Faults, func(f Fault) bool {
		if f.Start >= end || f.End <= begin {
			return false
		}
		return f.Kind.away() || f.Resource == r.Resource && (f.Kind == DeleteLock || slices.ContainsFunc(f.Revocations, func(call Revocation) bool {
			return cmp.Or(call.Fence, r.Fence) == r.Fence && call.Outcome != WasFree && call.Outcome != WasOthers
		}))
	})
}
