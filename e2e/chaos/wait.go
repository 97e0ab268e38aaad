package chaos

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/sidingq/siding/queue"
)

// staleWaiter is for how long a waiter that is gone may stay in its wait queue.
const staleWaiter = 10 * time.Second

// checkWait checks that a task that has ended by its MaxWait had waited for as long, and that one that was
// rejected by its MaxWaiting may have found as many others.
func (c *checker) checkWait(t *Task, e End) {
	switch p := t.Policy; {
	case e.By == queue.EventWaitedTooLong && e.At-t.Sent < p.MaxWait:
		c.wrong("task %s had waited too long at %v on %s, and was enqueued at %v: want %v or more", t.ID, e.At, e.Process, t.Sent, p.MaxWait)
	case e.By == queue.EventRejected && p.OnBusy != queue.OnBusyReject:
		if others := c.unfinished(t, e.At); others < p.MaxWaiting {
			c.wrong("task %s was rejected at %v on %s, and at most %d others waited: want %d or more", t.ID, e.At, e.Process, others, p.MaxWaiting)
		}
	}
}

// overdue is how much longer than its MaxWait a task may wait: the elected server ends the wait when it is
// over, and asynq keeps whole seconds.
const overdue = 1500 * time.Millisecond

// checkOverdue checks that no task waited for much longer than its MaxWait. A wait begins when a worker has
// room to bring the task to its resource. A task that has waited for too long ends once a worker has room.
func (c *checker) checkOverdue() {
	busy, taken := c.busy(), c.taken()
	for _, id := range slices.Sorted(maps.Keys(c.Tasks)) {
		t := c.Tasks[id]
		if t.Policy.MaxWait == 0 {
			continue
		}
		waits, _ := c.waits(t)
		for _, w := range waits {
			open := when(func(n counts) bool { return n[0] > 0 && n[1]+n[2] == 0 }, []Span{w}, busy, taken)
			if len(open) == 0 {
				continue
			}
			i := c.explain(Span{From: open[0].From, To: w.To}, t.Resource, t.Policy.MaxWait+overdue)
			var missed time.Duration
			for _, o := range open {
				missed += max(0, o.To-max(o.From, i.Due))
			}
			if missed > noise {
				c.wrong("task %s, which waits for %v at most, waited from %v to %v, %v longer than it may while a worker had room; the last to explain it: %s",
					id, t.Policy.MaxWait, i.From, i.To, missed, i.After)
			}
		}
	}
}

// unfinished returns how many other tasks may have waited for t's resource.
func (c *checker) unfinished(t *Task, at time.Duration) (count int) {
	for _, other := range c.tasksOf[t.Resource] {
		if other != t && other.Sent <= at && (other.Deleted || at-staleWaiter < c.lastSeen(other)) {
			count++
		}
	}
	return count
}

// lastSeen returns when a task last ran or ended. One that has not may be there for ever.
func (c *checker) lastSeen(t *Task) time.Duration {
	if len(c.byTask[t.ID])+len(c.ends[t.ID]) == 0 {
		return math.MaxInt64
	}
	var seen time.Duration
	for _, r := range c.byTask[t.ID] {
		seen = max(seen, c.ended(r))
	}
	for _, e := range c.ends[t.ID] {
		seen = max(seen, e.At)
	}
	return seen
}

// checkPriorities checks that tasks of the highest priority wait for less time than those without one. Each
// resource has tasks of all priorities, in the same proportions.
func (c *checker) checkPriorities() {
	const enough = 100
	var waits [2][]time.Duration
	for _, t := range c.Tasks {
		runs := c.byTask[t.ID]
		if t.Resource == "" || IsPool(t.Resource) || t.Policy != (queue.Policy{}) || len(runs) == 0 {
			continue
		}
		switch wait := max(0, runs[0].Begin-t.Accepted); t.Priority {
		case 0:
			waits[0] = append(waits[0], wait)
		case queue.MaxPriority:
			waits[1] = append(waits[1], wait)
		}
	}
	if len(waits[0]) < enough || len(waits[1]) < enough {
		return
	}
	for n := range waits {
		slices.Sort(waits[n])
		c.Waits[n] = waits[n][len(waits[n])/2]
	}
	if c.Waits[1] >= c.Waits[0] {
		c.wrong("half of the tasks of priority %d waited for %v or longer, and of those of priority 0 for %v", queue.MaxPriority, c.Waits[1], c.Waits[0])
	}
}
