package chaos

import (
	"slices"
	"time"
)

// checkPool checks that no more tasks hold a resource than its limit says, and that no more start in any
// period than its rates say.
func (c *checker) checkPool(resource string) {
	c.eachStart(resource, func(last Run, others []Run) {
		c.checkAwakening(last)
		c.Together = max(c.Together, min(len(others)+1, PoolHolders))
		if len(others) < PoolHolders {
			return
		}
		if f := c.overlapWith(others, last); f != nil {
			c.account(f.Kind).Overlaps++
			return
		}
		c.wrong("%d hold %s at %v, which has a limit of %d: the last is %s on %s (fence %d)", len(others)+1, last.Resource, last.Begin, PoolHolders,
			last.Task, last.Process, last.Fence)
	})
	c.checkRates(resource)
}

// eachStart calls see for each run on a resource, in order, with the others that hold the resource when
// the run begins.
func (c *checker) eachStart(resource string, see func(r Run, others []Run)) {
	var holders []Run
	for _, r := range c.byResource[resource] {
		holders = slices.DeleteFunc(holders, func(h Run) bool { return c.believed(h) <= r.Begin })
		see(r, holders)
		holders = append(holders, r)
	}
}

// overlapWith returns the fault that explains that last holds a resource beside others, nil if there is none.
func (c *checker) overlapWith(others []Run, last Run) *Fault {
	for _, h := range others {
		if f := c.overlap(h, last); f != nil {
			return f
		}
	}
	return nil
}

// checkRates checks the starts of a resource. The fence of a run is when its lock was granted, by Redis's
// clock. A fault in which Redis loses data loses what it knows of starts.
func (c *checker) checkRates(resource string) {
	const precision = time.Millisecond
	runs := slices.Clone(c.byResource[resource])
	slices.SortFunc(runs, func(a, b Run) int { return int(a.Fence - b.Fence) })
	for _, rate := range poolLimit.Rates {
		reached := false
		for i := rate.Starts; i < len(runs); i++ {
			first, last := runs[i-rate.Starts], runs[i]
			took := time.Duration(last.Fence-first.Fence) * time.Microsecond
			if took >= rate.Period-precision {
				reached = reached || took < rate.Period+rate.Period/10
				continue
			}
			forgot := slices.ContainsFunc(c.Faults, func(f Fault) bool {
				return f.Kind.trait().loses && f.Start-lag <= last.Begin && first.Begin <= f.End+belief
			})
			if !forgot {
				c.wrong("%s had %d starts in %v, and at most %d are allowed in %v: from %s at %v to %s at %v", resource, rate.Starts+1, took,
					rate.Starts, rate.Period, first.Task, first.Begin, last.Task, last.Begin)
			}
		}
		if reached {
			c.Throttled++
		}
	}
}
