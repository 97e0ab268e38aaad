package chaos

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"
)

// How long a free resource may stand idle, see [Fault.grace].
const (
	// resumption counts from the end of a fault.
	resumption = 3 * time.Second
	// takeover counts from the end of a lock whose holder died or was cut off.
	takeover = 2 * time.Second
	// A dead master is given up after nodeTimeout, that of a Cluster's nodes (sentinels
	// take 1 s). From there election counts.
	nodeTimeout, election = 2 * time.Second, 5 * time.Second
	// recovery counts from when a task's worker died to when the task is put back.
	recovery = 25 * time.Second
	// noise is added to each of these. Servers and workers share a few processors, so any
	// of them may stand still for a moment without a fault.
	noise = time.Second
)

const (
	// resent is how often asynq sends a failed acknowledgement again. Until then its worker
	// has the task.
	resent = 5 * time.Second
	// spared is how many crashes of a task's workers Siding makes up for by default.
	spared = 3
)

// An idleTime is one in which nobody held a resource although tasks waited for it and a
// worker had room for one.
type idleTime struct {
	Resource string
	From, To time.Duration
	Waiting  int // tasks, at most
	// After is the last fault that could explain it, nil if there was none. The time
	// counts from Since on and may last until Due.
	After      *Fault
	Since, Due time.Duration
}

// A span is a time. One that does not end after its beginning is empty.
type span struct{ from, to time.Duration }

// grace returns from when on it counts that a resource stands idle after the fault, and
// for how long it may.
func (f *Fault) grace() (since, goal time.Duration) {
	switch f.Kind {
	case KillWorker, StopWorker: // from then on its locks are not renewed
		return f.Start, TTL + takeover
	case Failover, StopMaster, Uninjected: // or until the servers agree, if that takes longer
		return f.Start, max(nodeTimeout+election, f.End-f.Start)
	case RestartKept, HangRedis, CutConnections, SwallowReplies, LosePackets:
		// Up to the end a lock may be granted to one who is never told.
		return f.End, TTL + takeover
	default:
		return f.End, resumption
	}
}

// checkIdle looks for free resources that stood idle for too long.
func (c *checker) checkIdle() {
	waiting, silent := make(map[string][]span), make(map[string][]span) // by resource
	for _, t := range c.Tasks {
		if t.Resource != "" {
			w, s := c.waits(t)
			waiting[t.Resource], silent[t.Resource] = append(waiting[t.Resource], w...), append(silent[t.Resource], s...)
		}
	}
	busy, taken := c.busy(), c.taken()
	for _, resource := range slices.Sorted(maps.Keys(waiting)) {
		blocked := slices.Concat(busy, c.held(resource))
		for _, i := range idle(waiting[resource], taken, blocked) {
			c.explain(&i, resource, resumption)
			c.checkDue(i, "")
			if i.After != nil {
				a := c.account(i.After.Kind)
				a.Idle = max(a.Idle, i.To-i.Since)
			}
		}
		for _, i := range idle(silent[resource], nil, slices.Concat(blocked, waiting[resource])) {
			c.explain(&i, resource, recovery)
			c.checkDue(i, ", of dead workers only")
		}
	}
}

// checkDue reports an idle time that lasted for too long.
func (c *checker) checkDue(i idleTime, who string) {
	if i.To <= i.Due {
		return
	}
	c.wrong("%s was free from %v to %v while %d of its tasks waited%s, %v longer than it may be; before it: %s; the last to explain it: %s",
		i.Resource, i.From, i.To, i.Waiting, who, i.To-i.Due, c.latest(i.From), i.After)
}

// explain says until when the resource may stand idle: until the goal after its beginning,
// or until that of the last fault before.
func (c *checker) explain(i *idleTime, resource string, goal time.Duration) {
	i.Resource, i.Since, i.Due = resource, i.From, i.From+goal+noise
	last := time.Duration(0)
	for n := range c.History.Faults {
		f := &c.History.Faults[n]
		if f.Start >= min(i.Due, i.To) {
			break
		}
		since, within := f.grace()
		due := since + max(within, goal) + noise
		if due <= last || f.Resource != "" && f.Resource != resource {
			continue
		}
		last = due
		i.After, i.Since, i.Due = f, max(i.From, since), max(i.Due, due)
	}
}

// idle returns the times in which there were more of the waiting than of the taken, and
// none of the blocked.
func idle(waiting, taken, blocked []span) []idleTime {
	type change struct {
		at                      time.Duration
		waiting, taken, blocked int
	}
	var changes []change
	add := func(s span, c change) {
		if s.from < s.to {
			changes = append(changes, change{s.from, c.waiting, c.taken, c.blocked}, change{s.to, -c.waiting, -c.taken, -c.blocked})
		}
	}
	for _, s := range waiting {
		add(s, change{waiting: 1})
	}
	for _, s := range taken {
		add(s, change{taken: 1})
	}
	for _, s := range blocked {
		add(s, change{blocked: 1})
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	var (
		found []idleTime
		now   change
		was   bool
	)
	for n, c := range changes {
		now.waiting, now.taken, now.blocked = now.waiting+c.waiting, now.taken+c.taken, now.blocked+c.blocked
		if n+1 < len(changes) && changes[n+1].at == c.at {
			continue
		}
		is := now.waiting > now.taken && now.blocked == 0
		if is && !was {
			found = append(found, idleTime{From: c.at})
		}
		if is || was {
			last := &found[len(found)-1]
			last.To, last.Waiting = c.at, max(last.Waiting, now.waiting)
		}
		was = is
	}
	return found
}

// waits returns when a task waited: accepted, not finished, not at work, and not in a
// back-off after its own failure. It was silent while a worker had it that was dead or
// cut off: as far as is known, from the beginning of a wait until it was put back. A
// wait that did not end in a run counts only if it is known when Redis forgot the task.
func (c *checker) waits(t *Task) (waiting, silent []span) {
	if t.Unknown || t.Deleted || t.Shelved {
		return nil, nil
	}
	since, crashed, resting := t.Accepted, false, false
	until := func(to time.Duration) {
		from, backs := max(since, t.RunAgain), c.backs[t.ID]
		n, _ := slices.BinarySearch(backs, to) // so often it was put back by then
		switch {
		case resting:
		case n > 0 && backs[n-1] > from:
			silent, waiting = append(silent, span{from, backs[n-1]}), append(waiting, span{backs[n-1], to})
		case !crashed:
			waiting = append(waiting, span{from, to})
		case n < spared: // else it is left to asynq
			silent = append(silent, span{from, to})
		}
	}
	for _, r := range c.byTask[t.ID] {
		until(r.Begin)
		if r.Outcome == Done {
			return waiting, silent
		}
		since = max(since, c.ended(r))
		crashed, resting = r.Returned == 0, r.Outcome == Failed || r.Outcome == Broken
		if !crashed {
			since = c.acknowledged(since)
		}
	}
	for _, f := range c.History.Faults {
		if f.Forgot[t.ID] {
			until(f.Start)
		}
	}
	return waiting, silent
}

// acknowledged returns until when a worker has a task whose handler returned at that
// time: longer if Redis was away.
func (c *checker) acknowledged(returned time.Duration) time.Duration {
	for _, f := range c.History.Faults {
		if f.Kind.away() && f.Start-noise <= returned && returned <= f.End+noise {
			returned = f.End + resent
		}
	}
	return returned
}

// held returns when the resource was held: until a run ceased to believe it, or its
// process was stopped for so long that its lock ran out.
func (c *checker) held(resource string) []span {
	var held []span
	for _, r := range c.byResource[resource] {
		end := c.believed(r)
		if s, ok := c.outlasted(r); ok {
			end = s.From
		}
		held = append(held, span{r.Begin, end})
	}
	return held
}

// taken returns when a stopped worker may have had a task that it had not begun, of which
// there is no record: one of each resource. It lets go of it soon after it goes on.
func (c *checker) taken() []span {
	var taken []span
	for _, p := range c.Processes {
		for _, s := range p.Stops {
			taken = append(taken, span{s.From, s.To + resumption})
		}
	}
	return taken
}

// busy returns when no worker had room for a task more.
func (c *checker) busy() []span {
	type change struct {
		at               time.Duration
		process          string
		serving, running int
	}
	var changes []change
	for name, p := range c.Processes {
		if p.Serving == 0 {
			continue
		}
		changes = append(changes, change{p.Serving, name, 1, 0}, change{p.Exited, name, -1, 0})
		for _, s := range p.Stops {
			changes = append(changes, change{s.From, name, -1, 0}, change{s.To, name, 1, 0})
		}
	}
	for _, r := range c.Runs {
		changes = append(changes, change{r.Begin, r.Process, 0, 1}, change{c.ended(r), r.Process, 0, -1})
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	var (
		busy  []span
		room  int // of all
		since time.Duration
		now   = make(map[string]change)
	)
	most := c.Concurrency
	roomOf := func(c change) int {
		if c.serving < 1 {
			return 0
		}
		return max(0, most-c.running)
	}
	for _, c := range changes {
		before, p := room, now[c.process]
		room -= roomOf(p)
		p.serving, p.running = p.serving+c.serving, p.running+c.running
		room += roomOf(p)
		now[c.process] = p
		switch {
		case before == 0 && room > 0:
			busy = append(busy, span{since, c.at})
		case before > 0 && room == 0:
			since = c.at
		}
	}
	return append(busy, span{since, math.MaxInt64}) // all have ended
}
