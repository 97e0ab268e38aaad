package chaos

import (
	"maps"
	"slices"
	"time"
)

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
