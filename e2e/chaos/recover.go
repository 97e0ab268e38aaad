package chaos

import (
	"maps"
	"slices"
	"time"
)

// recoveries measures after each fault how long it took until all that it had hit
// went on, unless another fault came in between: its time would count.
func (c *checker) recoveries() {
	for _, f := range c.History.Faults {
		since := f.End
		if f.Kind.trait().fromStart {
			since = f.Start
		}
		if took, ok := c.goesOn(f, since); ok && !c.disturbed(f, since, since+took) {
			a := c.account(f.Kind)
			a.Recovered = append(a.Recovered, took)
		}
		if f.Kind == KillWorker {
			c.comesBack(f)
		}
	}
}

// goesOn returns how long after that time a task had begun and succeeded on each
// resource that the fault had hit. A resource nobody wanted any more counts for
// nothing.
func (c *checker) goesOn(f Fault, since time.Duration) (longest time.Duration, ok bool) {
	for _, resource := range c.hit(f) {
		runs := c.byResource[resource]
		first, _ := slices.BinarySearchFunc(runs, since, func(r Run, t time.Duration) int { return int(r.Begin - t) })
		for _, r := range runs[first:] {
			if r.Outcome == Done && (f.Queue == "" || c.Tasks[r.Task].Queue == f.Queue) {
				longest, ok = max(longest, r.Returned-since), true
				break
			}
		}
	}
	return longest, ok
}

// disturbed says whether another fault than f halted work between the two times:
// one of a worker halts those who wait for its locks until these have run out.
func (c *checker) disturbed(f Fault, since, then time.Duration) bool {
	return slices.ContainsFunc(c.History.Faults, func(other Fault) bool {
		end := other.End
		switch {
		case other.Kind == f.Kind && other.Start == f.Start:
			return false
		case other.Kind == KillWorker, other.Kind == StopWorker:
			end = other.Start + TTL
		case other.Kind == HaltWorker: // locks are renewed in between
		case !other.Kind.away():
			return false
		}
		return other.Start < then && since < end
	})
}

// hit returns the resources that a fault concerned: those that were held by the
// process that it hit, or all.
func (c *checker) hit(f Fault) []string {
	switch {
	case f.Resource != "":
		return []string{f.Resource}
	case f.Process == "":
		return slices.Sorted(maps.Keys(c.byResource))
	}
	held := make(map[string]bool)
	for _, r := range c.interrupted(f) {
		held[r.Resource] = true
	}
	delete(held, "")
	return slices.Sorted(maps.Keys(held))
}

// interrupted returns the runs of the process that a fault hit which were under
// way then.
func (c *checker) interrupted(f Fault) []Run {
	var runs []Run
	for _, r := range c.Runs {
		if r.Process == f.Process && r.Begin <= f.Start && (r.Returned == 0 || r.Returned > f.Start) {
			runs = append(runs, r)
		}
	}
	return runs
}

// comesBack measures when the tasks of a killed worker ran again.
func (c *checker) comesBack(f Fault) {
	for _, r := range c.interrupted(f) {
		for _, later := range c.byTask[r.Task] {
			if later.Begin > f.Start && r.Resource != "" {
				c.Back = append(c.Back, later.Begin-f.Start)
				break
			}
		}
	}
}
