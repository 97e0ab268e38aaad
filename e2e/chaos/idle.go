package chaos

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// How long a free resource may stand idle, see [Fault.allowed].
const (
	// resumption counts from the end of a fault.
	resumption = 3 * time.Second
	// takeover counts from the end of a lock whose holder died or was cut off.
	takeover = 2 * time.Second
	// election counts from when the nodes of a Cluster give up a dead master, after nodeTimeout
	// (sentinels after 1 s).
	nodeTimeout, election = 2 * time.Second, 5 * time.Second
	// recovery counts from the death of a task's worker until the task has its place again.
	recovery = 25 * time.Second
	// noise is added to each of these. Servers and workers share a few processors, so any may stand
	// still for a moment without a fault.
	noise = time.Second
)

const (
	// resent is the longest time after which a server sends a step again that was not answered. Until
	// then the worker has the task.
	resent = 4 * time.Second
	// tolerated is the number of worker crashes that cost a task no retry by default.
	tolerated = 3
)

// An idleTime is one in which nobody held a resource, although tasks waited for it and a worker had
// room for one.
type idleTime struct {
	Span
	Resource string
	// After is the last fault that could explain it, nil if there was none. The time counts
	// from Since on and may last until Due.
	After      *Fault
	Since, Due time.Duration
}

// allowed returns for how long a resource may stand idle after the fault, and since when that
// counts.
func (f *Fault) allowed() (since, goal time.Duration) {
	switch f.Kind {
	case KillWorker, StopWorker: // from then on its locks are not renewed
		return f.Start, TTL + takeover
	case RevokeLease: // the same, if its holder does not return at the end of its context
		return f.End, TTL + takeover
	case Failover, StopMaster, Uninjected: // or until the servers agree, if that takes longer
		return f.Start, max(nodeTimeout+election, f.End-f.Start)
	case RestartKept, HangRedis, SlowDisk, CutConnections, SwallowReplies, LosePackets:
		// Until the end a lock may be granted to a process that never has the result.
		return f.End, TTL + takeover
	default:
		return f.End, resumption
	}
}

// checkIdle looks for free resources that stood idle for too long.
func (c *checker) checkIdle() {
	waiting, orphaned := make(map[string][]Span), make(map[string][]Span) // by resource
	for _, t := range c.Tasks {
		if t.Resource != "" {
			w, s := c.waits(t)
			line := idleAs(t.Resource)
			waiting[line], orphaned[line] = append(waiting[line], w...), append(orphaned[line], s...)
		}
	}
	busy, taken := c.busy(), c.taken()
	for _, resource := range slices.Sorted(maps.Keys(waiting)) {
		blocked := slices.Concat(busy, c.held(resource), c.resting(resource))
		for _, open := range when(func(n counts) bool { return n[0] > n[1] && n[2] == 0 }, waiting[resource], taken, busy) {
			c.Watched += open.To - open.From
		}
		for _, free := range when(func(n counts) bool { return n[0] > n[1] && n[2] == 0 }, waiting[resource], taken, blocked) {
			i := c.explain(free, resource, resumption)
			c.checkDue(i, "")
			if i.After != nil {
				a := c.account(i.After.Kind)
				a.Idle = max(a.Idle, i.To-i.Since)
			}
		}
		for _, free := range when(func(n counts) bool { return n[0] > 0 && n[1] == 0 }, orphaned[resource], slices.Concat(blocked, waiting[resource])) {
			c.checkDue(c.explain(free, resource, recovery), ", of dead workers only")
		}
	}
}

// checkDue reports an idle time that lasted for too long.
func (c *checker) checkDue(i idleTime, who string) {
	if i.To <= i.Due {
		return
	}
	c.wrong("%s was free from %v to %v while %d of its tasks waited%s, %v longer than it may be; before it: %s; the last to explain it: %s; some that waited: %s; the runs around it: %s",
		i.Resource, i.From, i.To, i.most, who, i.To-i.Due, c.latest(i.From), i.After, c.waitedAt(i), c.around(i))
}

// around names the last runs of the resource that began before an idle time, and the first ones after it.
func (c *checker) around(i idleTime) string {
	runs := c.byResource[i.Resource]
	n, _ := slices.BinarySearchFunc(runs, i.To, func(r Run, to time.Duration) int { return cmp.Compare(r.Begin, to) })
	var found []string
	for _, r := range runs[max(0, n-3):min(len(runs), n+2)] {
		found = append(found, fmt.Sprintf("%s (%s)%s", r.Task, c.Tasks[r.Task].Fate, r.told()))
	}
	return strings.Join(found, "; ")
}

// waitedAt names some of the tasks that waited at the end of an idle time, with their runs before it.
func (c *checker) waitedAt(i idleTime) string {
	const most = 3
	var found []string
	for _, id := range slices.Sorted(maps.Keys(c.Tasks)) {
		t := c.Tasks[id]
		waiting, orphaned := c.waits(t)
		if idleAs(t.Resource) != i.Resource || !slices.ContainsFunc(slices.Concat(waiting, orphaned), func(s Span) bool { return s.From < i.To && i.To <= s.To }) {
			continue
		}
		var text strings.Builder
		text.WriteString(id)
		for _, r := range c.byTask[id] {
			if r.Begin < i.To {
				text.WriteString(", a run" + r.told())
			}
		}
		if found = append(found, text.String()); len(found) == most {
			break
		}
	}
	return strings.Join(found, "; ")
}

// explain returns until when the resource may stand idle: for the goal after the beginning, or as
// the last fault before allows.
func (c *checker) explain(free Span, resource string, goal time.Duration) idleTime {
	i := idleTime{Span: free, Resource: resource, Since: free.From, Due: free.From + goal + noise}
	last := time.Duration(0)
	for n := range c.Faults {
		f := &c.Faults[n]
		if f.Start >= min(i.Due, i.To) {
			break
		}
		since, within := f.allowed()
		due := since + max(within, goal) + noise
		if due <= last || f.Resource != "" && f.Resource != resource {
			continue
		}
		last = due
		i.After, i.Since, i.Due = f, max(i.From, since), max(i.Due, due)
	}
	return i
}

// counts has for several lists how many of their spans cover a moment.
type counts [3]int

// when returns the times in which the lists have the wanted counts.
func when(wanted func(counts) bool, lists ...[]Span) (found []Span) {
	type change struct {
		at       time.Duration
		list, by int
	}
	var changes []change
	for list, spans := range lists {
		for _, s := range spans {
			if s.From < s.To {
				changes = append(changes, change{s.From, list, 1}, change{s.To, list, -1})
			}
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	var now counts
	was := false
	for i, c := range changes {
		now[c.list] += c.by
		if i+1 < len(changes) && changes[i+1].at == c.at {
			continue
		}
		is := wanted(now)
		if is && !was {
			found = append(found, Span{From: c.at})
		}
		if is || was {
			last := &found[len(found)-1]
			last.To, last.most = c.at, max(last.most, now[0])
		}
		was = is
	}
	return found
}

// waits returns when a task waited: accepted, not finished, not at work, and not in a back-off
// after its own failure. The task was orphaned while a dead or cut-off worker had it: from the
// beginning of a wait until its requeue. A wait that did not end in a run counts only if it is
// known when Redis forgot the task, or when the task ended by its policy. From then on the task
// is not counted, even if its worker died and it runs again.
func (c *checker) waits(t *Task) (waiting, orphaned []Span) {
	if t.Unknown || t.Deleted || t.Shelved {
		return nil, nil
	}
	since, losses, crashed, resting := t.Accepted, 0, false, false
	until := func(to time.Duration) {
		from, requeues := max(since, t.RunAgain), c.requeues[t.ID]
		// The task may begin before its requeue is written down. If its worker dies after that, the
		// next requeue comes a TTL later, which is longer than the noise.
		n, _ := slices.BinarySearch(requeues, to+noise)
		switch {
		case resting:
		case n > 0 && requeues[n-1] > from:
			requeued := min(requeues[n-1], to)
			orphaned, waiting = append(orphaned, Span{From: from, To: requeued}), append(waiting, Span{From: requeued, To: to})
		case !crashed:
			waiting = append(waiting, Span{From: from, To: to})
		case n < tolerated: // else it uses a retry
			orphaned = append(orphaned, Span{From: from, To: to})
		}
	}
	attempts := slices.Clone(c.byTask[t.ID])
	for _, e := range c.ends[t.ID] {
		attempts = append(attempts, Run{Begin: e.At, Returned: e.At, Outcome: Failed})
	}
	slices.SortFunc(attempts, func(a, b Run) int { return cmp.Compare(a.Begin, b.Begin) })
	for i, r := range attempts {
		until(r.Begin)
		if r.Outcome == Done {
			return waiting, orphaned
		}
		since = max(since, c.ended(r))
		crashed, resting = r.Returned == 0, r.Outcome == Failed || r.Outcome == Broken
		if !crashed {
			since = c.acknowledged(since)
		}
		if r.Outcome == Ended || r.Outcome == Stale {
			losses++
			since += lossDelay(losses)
			// It has used a retry: it was taken for crashed, once too often.
			resting = i+1 < len(attempts) && attempts[i+1].Retried > r.Retried
		}
	}
	for _, f := range c.Faults {
		if f.Forgot[t.ID] {
			until(f.Start)
		}
	}
	return waiting, orphaned
}

// lossDelay returns how much longer a task waits by itself after its n-th lost lock than after its first.
// The promise is a delay that doubles each time, from a second to a minute, and a twentieth more.
func lossDelay(n int) time.Duration {
	const first, longest = time.Second, time.Minute
	delay := min(first<<min(n-1, 10), longest)
	return delay + delay/20 - first - first/20
}

// acknowledged returns until when a worker has a task whose handler returned at that time. That
// is later if Redis was away.
func (c *checker) acknowledged(returned time.Duration) time.Duration {
	for _, f := range c.Faults {
		if f.Kind.away() && f.Start-noise <= returned && returned <= f.End+noise {
			returned = f.End + resent
		}
	}
	return returned
}

// held returns when the resource was held. That ends when a run stops believing so, or when the
// lock of a stopped process has expired.
func (c *checker) held(resource string) []Span {
	var held []Span
	for _, r := range c.byResource[resource] {
		end := c.believed(r)
		if s, ok := c.outlasted(r); ok {
			end = s.From
		}
		held = append(held, Span{From: r.Begin, To: end})
	}
	return held
}

// taken returns when a stopped worker may have had a task of each resource that it had not begun.
// Nothing records such a task. The worker gives it back soon after going on.
func (c *checker) taken() []Span {
	var taken []Span
	for _, p := range c.Processes {
		for _, s := range p.Stops {
			taken = append(taken, Span{From: s.From, To: s.To + resumption})
		}
	}
	return taken
}

// busy returns when no worker had room for one more task.
func (c *checker) busy() []Span {
	running, room := make(map[string][]Span), []Span(nil)
	for _, r := range c.Runs {
		running[r.Process] = append(running[r.Process], Span{From: r.Begin, To: c.ended(r)})
	}
	for name, p := range c.Processes {
		if p.Serving == 0 {
			continue
		}
		room = append(room, when(func(n counts) bool { return n[0] > 0 && n[1] < c.Concurrency && n[2] == 0 },
			[]Span{{From: p.Serving, To: p.Exited}}, running[name], p.Stops)...)
	}
	return when(func(n counts) bool { return n[0] > 0 && n[1] == 0 }, []Span{{To: math.MaxInt64}}, room)
}
