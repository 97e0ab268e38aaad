package chaos

import (
	"slices"
	"time"
)

// enough is how many faults of a kind must come before one of them must have had an effect; and
// enoughRare, if most of the kind have none. About three in ten revocations have one.
const (
	enough     = 5
	enoughRare = 30
)

// checkFaults counts the faults that hit something. A kind that never does would show nothing.
func (c *checker) checkFaults() {
	for i := range c.Faults {
		if f := &c.Faults[i]; c.effective(f) {
			c.account(f.Kind).Effective++
		}
	}
	for _, t := range traits {
		n, planned := came(c.Faults, t.kind), c.Planned[t.kind]
		many := enough
		if t.rare {
			many = enoughRare
		}
		switch {
		case n == 0 && planned >= enough:
			c.wrong("%s: planned %d times, and never came", t.kind, planned)
		case n >= many && planned > 0 && c.account(t.kind).Effective == 0:
			c.wrong("%s: came %d times, and never had an effect", t.kind, n)
		}
	}
}

// came returns how many of the faults are of the kind.
func came(faults []Fault, k Kind) (n int) {
	for _, f := range faults {
		if f.Kind == k {
			n++
		}
	}
	return n
}

// effective reports whether the fault is known to have hit something.
func (c *checker) effective(f *Fault) bool {
	during := func(at time.Duration) bool { return f.Start <= at && at <= f.End }
	switch f.Kind {
	case KillWorker: // a task was at work
		return slices.ContainsFunc(c.Runs, func(r Run) bool { return r.Process == f.Process && r.Returned == 0 && r.Begin <= f.Start })
	case StopWorker: // a lock ran out
		return slices.ContainsFunc(c.Runs, func(r Run) bool {
			stop, ok := Span{}, false
			if r.Process == f.Process && r.Resource != "" {
				stop, ok = c.outlasted(r)
			}
			return ok && during(stop.From)
		})
	case HaltWorker: // a task was at work
		return slices.ContainsFunc(c.Processes[f.Process].Stops, func(s Span) bool {
			return during(s.From) && slices.ContainsFunc(c.Runs, func(r Run) bool {
				return r.Process == f.Process && r.Begin < s.From && s.From < c.ended(r)
			})
		})
	case RollingStart:
		for _, p := range c.Processes {
			if during(p.Exited) {
				return true
			}
		}
		return false
	case RestartEmpty:
		return len(f.Forgot) > 0
	case RestartKept, HangRedis, SlowDisk, SwallowReplies, LosePackets:
		return c.silent(f)
	case RevokeLease:
		return slices.ContainsFunc(f.Revocations, func(call Revocation) bool {
			r, ok := c.revoked(f, call)
			return ok && r.Lost >= call.Start
		})
	case Failover, StopMaster, Uninjected:
		return true // it is over when there is another master
	default:
		return f.Hits > 0
	}
}

// silent reports whether the fault kept all tasks from beginning, after they had begun before.
func (c *checker) silent(f *Fault) bool {
	const (
		before = time.Second
		under  = 300 * time.Millisecond // what was under way has come to its end
	)
	from, to := f.Start+under, f.Start+(f.End-f.Start)*2/3
	busy := false
	for _, r := range c.Runs {
		if from <= r.Begin && r.Begin < to {
			return false
		}
		busy = busy || f.Start-before <= r.Begin && r.Begin < f.Start
	}
	return from < to && busy
}
