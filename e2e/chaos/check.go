package chaos

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// belief is how long a holder may still believe in a lock that Redis forgot. The holder notices
// at its next renewal, or at its deadline.
var belief = TTL

const (
	// awakening is how long a process that goes on may take to notice that its locks are gone.
	awakening = time.Second
	// lag bounds how far a replica is behind its master.
	lag = time.Second
)

// A Verdict is what was found in a history.
type Verdict struct {
	// Wrong names what must not be; empty when all is well.
	Wrong []string
	// Excused has the accounts of the kinds of fault.
	Excused map[Kind]*Account
	// Told has the times, in order, after which the contexts of revoked leases ended. Those that
	// another fault may have put off are left out.
	Told []time.Duration
	// Together is how many have held a pool at a time at most, up to its limit. Throttled is how many of
	// the pools' rates kept a task away: one started within a tenth of the period after the rate let it.
	Together, Throttled int
	// Held is how often a task of a line failed, and the next one waited for it.
	Held int
	// Overridden is how many overrides of limits all servers heard of.
	Overridden int
	// Watched is for how long a resource had a task that waited while a worker had room, in all.
	Watched time.Duration
}

// An Account is what a kind of fault explains, and so is not wrong.
type Account struct {
	Effective int           // faults that are known to have hit something
	Lost      int           // tasks that Redis forgot
	Overlaps  int           // runs that believed in a lock that another run had by then
	Idle      time.Duration // the longest that a free resource stood idle while a task waited
}

// Check looks for what must not be.
func Check(h *History) *Verdict {
	c := &checker{History: h, Verdict: &Verdict{Excused: make(map[Kind]*Account)}}
	c.prepare()
	c.checkTasks()
	c.checkEnds()
	c.checkOverdue()
	c.checkOrder()
	c.checkEffects()
	c.checkFences()
	c.checkHolds()
	c.checkIdle()
	c.checkRevocations()
	c.checkOverrides()
	c.checkRepeats()
	c.checkProcesses()
	c.checkFaults()
	for _, key := range h.Forever {
		c.wrong("key without expiry: %s", key)
	}
	return c.Verdict
}

type checker struct {
	*History
	*Verdict

	byTask     map[string][]Run // by their begin
	byResource map[string][]Run // guarded ones, by their begin
	effects    map[string]int
	requeues   map[string][]time.Duration // the times of a task's requeues, in order
	ends       map[string][]End           // of a task, in order
}

func (c *checker) wrong(format string, args ...any) {
	c.Wrong = append(c.Wrong, fmt.Sprintf(format, args...))
}

func (c *checker) account(k Kind) *Account {
	if c.Excused[k] == nil {
		c.Excused[k] = &Account{}
	}
	return c.Excused[k]
}

// prepare sorts what the checks look up.
func (c *checker) prepare() {
	slices.SortFunc(c.Runs, func(a, b Run) int { return cmp.Compare(a.Begin, b.Begin) })
	c.byTask, c.byResource, c.effects = make(map[string][]Run), make(map[string][]Run), make(map[string]int)
	for _, r := range c.Runs {
		c.byTask[r.Task] = append(c.byTask[r.Task], r)
		for _, resource := range r.resources() {
			c.byResource[resource] = append(c.byResource[resource], r)
		}
	}
	for _, e := range c.Effects {
		c.effects[e.Task]++
	}
	c.requeues = make(map[string][]time.Duration)
	for _, b := range c.Requeued {
		c.requeues[b.Task] = append(c.requeues[b.Task], b.At)
	}
	for _, at := range c.requeues {
		slices.Sort(at)
	}
	slices.SortFunc(c.Ends, func(a, b End) int { return cmp.Compare(a.At, b.At) })
	c.ends = make(map[string][]End)
	for _, e := range c.Ends {
		c.ends[e.Task] = append(c.ends[e.Task], e)
	}
}

// firstFault returns the first fault that a function wants, nil if there is none.
func (c *checker) firstFault(wanted func(*Fault) bool) *Fault {
	for i := range c.Faults {
		if wanted(&c.Faults[i]) {
			return &c.Faults[i]
		}
	}
	return nil
}

// latest returns the last fault injected by then, nil before the first.
func (c *checker) latest(by time.Duration) *Fault {
	var latest *Fault
	for i := range c.Faults {
		if c.Faults[i].Start <= by {
			latest = &c.Faults[i]
		}
	}
	return latest
}

func (c *checker) checkTasks() {
	for _, id := range slices.Sorted(maps.Keys(c.Tasks)) {
		t := c.Tasks[id]
		runs := c.byTask[id]
		if c.effects[id] > 0 {
			if t.Fate.fails() {
				c.wrong("task %s, which always fails, has an effect", id)
			}
			continue
		}
		if t.Unknown || t.Deleted || c.finished(t, runs) {
			continue
		}
		if f := c.forgetting(t); f != nil {
			c.account(f.Kind).Lost++
			continue
		}
		where := "it is not in Redis"
		if last, archived := c.Archived[id]; archived {
			where = fmt.Sprintf("it is archived for %q", last)
		}
		c.wrong("task %s (%s, on %q) is lost: accepted at %v, %d runs, %s", id, t.Fate, t.Resource, t.Accepted, len(runs), where)
	}
}

// finished says whether a task without an effect may be without one.
func (c *checker) finished(t *Task, runs []Run) bool {
	last, archived := c.Archived[t.ID]
	switch {
	case archived && t.Shelved:
		return true // an operator's last word
	case c.endedByPolicy(t):
		return true
	case t.Fate.fails() && archived && strings.Contains(last, ErrOwn):
		return true
	case t.Fate.fails() && slices.ContainsFunc(runs, func(r Run) bool { return r.Outcome == Failed }) && c.forgotten(t.ID):
		return true // it had failed for good, before the archive was forgotten
	case archived && t.Fate.once() && strings.Contains(last, "lease expired"):
		// The task had begun when its worker was lost, or was just about to, so the task runs at
		// most once. asynq recovers an unguarded task, which may have been on its way to the
		// worker.
		return t.Resource == "" || len(runs) > 0 || c.Started[t.ID]
	}
	return false
}

// forgotten says whether the task was among data that was thrown away.
func (c *checker) forgotten(id string) bool {
	return slices.ContainsFunc(c.Faults, func(f Fault) bool { return f.Forgot[id] })
}

// forgetting returns the fault that explains the loss of a task, nil if there is none. An empty
// restart forgets all tasks. A failover forgets the writes that had not reached the replica: a
// task, or an operator's taking the task out of the archive.
func (c *checker) forgetting(t *Task) *Fault {
	_, archived := c.Archived[t.ID]
	return c.firstFault(func(f *Fault) bool {
		during := func(at time.Duration) bool { return f.Start-lag <= at && at <= f.End }
		if f.Kind == RestartEmpty {
			return f.Forgot[t.ID]
		}
		return f.Kind.trait().loses && (during(t.Accepted) || archived && during(t.RunAgain))
	})
}

func (c *checker) checkEffects() {
	for _, id := range slices.Sorted(maps.Keys(c.effects)) {
		if n := c.effects[id]; n > 1 {
			c.wrong("task %s has %d effects", id, n)
		}
		switch {
		case c.Tasks[id] == nil:
			c.wrong("effect of task %s, which nobody enqueued", id)
		case len(c.byTask[id]) == 0:
			c.wrong("effect of task %s, of which no run is known", id)
		}
	}
	for _, r := range c.Runs {
		if r.Outcome == Done && c.effects[r.Task] == 0 {
			c.wrong("task %s was done by %s at %v, but has no effect", r.Task, r.Process, r.Returned)
		}
	}
}

func (c *checker) checkHolds() {
	for _, resource := range slices.Sorted(maps.Keys(c.byResource)) {
		if IsPool(resource) {
			c.checkPool(resource)
			continue
		}
		if resource == allParts {
			continue // each part is looked at
		}
		runs := c.byResource[resource]
		for i, r := range runs {
			c.checkAwakening(r)
			end := c.believed(r)
			var first *Fault
			for _, later := range runs[i+1:] {
				if later.Begin >= end {
					break
				}
				f := c.overlap(r, later)
				first = cmp.Or(first, f)
				if f == nil {
					c.wrong("two hold %s from %v to %v: %s on %s (fence %d) and %s on %s (fence %d)", resource, later.Begin, min(end, c.believed(later)),
						r.Task, r.Process, r.Fence, later.Task, later.Process, later.Fence)
				}
			}
			if first != nil {
				c.account(first.Kind).Overlaps++
			}
		}
	}
}

// overlap returns the fault that explains two holders at once, nil if there is none.
func (c *checker) overlap(a, b Run) *Fault {
	return c.firstFault(func(f *Fault) bool {
		if f.Kind == StopWorker {
			return (f.Process == a.Process || f.Process == b.Process) && f.Start <= c.believed(a) && a.Begin <= f.End
		}
		forgets := f.Kind.trait().loses || f.Kind == DeleteLock && f.Resource == a.Resource
		return forgets && f.Start <= b.Begin && b.Begin <= f.End+belief
	})
}

// checkAwakening looks at a run that outlasted its lock.
func (c *checker) checkAwakening(r Run) {
	s, ok := c.outlasted(r)
	if !ok {
		return
	}
	if late := c.believed(r) - s.To; late > awakening {
		c.wrong("task %s on %s believed in its lock for %v after its process had been stopped", r.Task, r.Process, late)
	}
}

func (c *checker) checkProcesses() {
	for _, name := range slices.Sorted(maps.Keys(c.Processes)) {
		if p := c.Processes[name]; p.Crash != "" {
			c.wrong("worker %s: %s", name, p.Crash)
		}
	}
}
