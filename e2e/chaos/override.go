package chaos

import (
	"cmp"
	"slices"
	"time"
)

// An Override is a limit that an operator set for one resource, and removed again.
type Override struct {
	Holders int // 0 for a pause
	// Since is when its answer came. Until is when the operator removed it.
	Since, Until time.Duration
}

// reach is how soon all servers keep to a limit that was set.
const reach = time.Second

// checkOverrides checks that no task starts on a resource while as many hold it as an operator allows.
func (c *checker) checkOverrides() {
	for i := range c.Faults {
		f := &c.Faults[i]
		if f.Override == nil {
			continue
		}
		from, to := c.known(f.Override)
		if from >= to {
			continue
		}
		c.Overridden++
		c.eachStart(f.Resource, func(r Run, others []Run) {
			if from <= r.Begin && r.Begin <= to && len(others) >= f.Override.Holders && c.overlapWith(others, r) == nil {
				c.wrong("task %s started on %s at %v as holder %d, and an operator allowed %d from %v to %v",
					r.Task, r.Resource, r.Begin, len(others)+1, f.Override.Holders, f.Override.Since, f.Override.Until)
			}
		})
	}
}

// known returns from when to when all servers know of an override. A server that stands still, or cannot
// ask Redis, knows of it later. Redis may forget it, but a failover forgets only what was written just
// before. Every server counts, as the rule of a hand-off is that of the server which releases the lock.
func (c *checker) known(o *Override) (from, to time.Duration) {
	const within = reach + noise
	var away []Span
	to = o.Until
	for _, p := range c.Processes {
		away = append(away, p.Stops...)
	}
	for _, f := range c.Faults {
		switch {
		case !f.Kind.away() || f.End+noise < o.Since:
		case f.Kind == RestartEmpty, f.Kind.trait().loses && f.Start < o.Since+lag:
			to = min(to, f.Start-lag)
		default:
			away = append(away, Span{From: f.Start, To: f.End})
		}
	}
	slices.SortFunc(away, func(a, b Span) int { return cmp.Compare(a.From, b.From) })
	from = o.Since + within
	for _, s := range away {
		if s.From < from && o.Since < s.To+noise {
			from = max(from, s.To+within)
		}
	}
	return from, to
}
