package chaos

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/sidingq/siding/queue"
)

const linePrefix = "line:"

// lines are resources whose tasks keep their order, whatever becomes of them.
func lines() []string { return numbered(linePrefix, 3) }

// IsLine reports whether a resource is one of those.
func IsLine(resource string) bool { return strings.HasPrefix(resource, linePrefix) }

// inOrder is the policy of their tasks.
var inOrder = queue.Policy{OnFailure: queue.OnFailureHold}

const (
	// rest is how long a task of [FateTwice] waits for a retry.
	rest = 500 * time.Millisecond
	// regard is how soon a held line goes on whose task an operator took away.
	regard = 10 * time.Second
)

// resting returns when tasks held their line, after a run of theirs.
func (c *checker) resting(resource string) (held []Span) {
	if !IsLine(resource) {
		return nil
	}
	for _, t := range c.Tasks {
		if t.Resource != resource {
			continue
		}
		runs := c.byTask[t.ID]
		for i, r := range runs {
			end := c.ended(r)
			switch {
			case t.Fate.fails():
				continue
			case r.Outcome == Done && (i+1 == len(runs) || runs[i+1].Retried == r.Retried):
				continue // but not one of which nobody heard, so that it was taken for crashed and used a retry
			case t.Deleted || t.Shelved || t.RunAgain > r.Begin:
				end += regard
			case r.Outcome == Failed && !c.cutOff(r):
				end = c.acknowledged(end) + rest
			case i+1 < len(runs): // its delay may be that of asynq
				end = runs[i+1].Begin
			}
			held = append(held, Span{From: c.ended(r), To: end})
		}
	}
	return held
}

// cutOff reports whether a run may have been taken for crashed before Redis knew how it ended: Redis was away meanwhile, or the
// process stood still. The delay of the task is asynq's then, if it has no free crashes left.
func (c *checker) cutOff(r Run) bool {
	end := c.ended(r) + noise
	return c.stoodStill(r.Process, r.Begin, end) || slices.ContainsFunc(c.Faults, func(f Fault) bool {
		return f.Kind.away() && f.Start <= end && r.Begin <= f.End+resent
	})
}

// checkOrder looks for tasks of a line that began before an earlier one of their queue had ended.
func (c *checker) checkOrder() {
	byQueue := make(map[[2]string][]*Task)
	for _, t := range c.Tasks {
		if IsLine(t.Resource) && len(c.byTask[t.ID]) > 0 {
			line := [2]string{t.Resource, t.Queue}
			byQueue[line] = append(byQueue[line], t)
		}
	}
	for _, tasks := range byQueue {
		slices.SortFunc(tasks, func(a, b *Task) int { return cmp.Compare(a.Sent, b.Sent) })
		for i, t := range tasks {
			first := c.byTask[t.ID][0]
			for _, earlier := range tasks[:i] {
				runs := c.byTask[earlier.ID]
				last := runs[len(runs)-1]
				switch {
				case c.mayFollow(earlier, t), c.doneInBatch(earlier, first), c.nobodyWaitedFor(earlier, first):
				case first.Begin < last.Begin && !c.stoodStill(last.Process, first.Begin-noise, last.Begin) && !c.reordered(first):
					c.wrong("task %s began on %s at %v, before %s, accepted at %v, which ran on %s at %v and was to end first; after %s; its runs: %v",
						t.ID, first.Process, first.Begin, earlier.ID, earlier.Accepted, last.Process, last.Begin, c.latest(first.Begin), runs)
				case earlier == tasks[i-1] && runs[0].Outcome == Failed && t.Accepted < last.Begin:
					c.Held++
				}
			}
		}
	}
}

// mayFollow reports whether a task of a line need not end before one that was sent later. Without an answer, or if it ran
// before that, it may have been stored at any time, and perhaps again. One that an operator archived has lost its place.
func (c *checker) mayFollow(t, later *Task) bool {
	return t.Unknown || t.Accepted > min(later.Sent, c.byTask[t.ID][0].Begin) || t.Priority < later.Priority || t.Shelved || t.RunAgain != 0
}

// doneInBatch reports whether a task was done in the batch in which the run began after it. If the batch had lost its lock and
// did not know yet, both begin again, in order.
func (c *checker) doneInBatch(t *Task, next Run) bool {
	return slices.ContainsFunc(c.byTask[t.ID], func(r Run) bool { return oneBatch(r, next) && r.Outcome == Done && r.Returned <= next.Begin })
}

// nobodyWaitedFor reports whether a task without retries had lost its lock when the run began, which a process that stands still does
// not notice, or had ended unheard. For all that the others knew its worker was dead, and then it is archived; so nobody waits for
// it, and its worker says too late that it is to come again.
func (c *checker) nobodyWaitedFor(t *Task, next Run) bool {
	return t.Fate.once() && slices.ContainsFunc(c.byTask[t.ID], func(r Run) bool {
		return r.Lost != 0 && (r.Lost < next.Begin || c.stoodStill(r.Process, r.Begin, next.Begin)) || c.ended(r) < next.Begin && c.cutOff(r)
	})
}

// oneBatch reports whether two runs had one lease.
func oneBatch(a, b Run) bool {
	return IsLine(a.Resource) && a.Resource == b.Resource && a.Process == b.Process && a.Fence == b.Fence
}

// reordered reports whether a fault may have a run begin before its turn: Redis has forgotten what came before it, or
// somebody has deleted the lock of the one before it.
func (c *checker) reordered(r Run) bool {
	return slices.ContainsFunc(c.Faults, func(f Fault) bool {
		return r.Begin <= f.End+belief && (f.Kind.trait().loses && r.Begin >= f.Start-lag || f.Kind == DeleteLock && f.Resource == r.Resource && r.Begin >= f.Start)
	})
}
