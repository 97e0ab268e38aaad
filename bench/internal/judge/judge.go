// Package judge keeps what the handlers of a fleet of workers write down, and says what faults have done to
// the fleet. The judge knows only that, what was enqueued, and which processes were struck. All times are of
// one clock, which no fault stops.
package judge

import (
	"cmp"
	"slices"
	"time"
)

// A Kind says what a record is about.
type Kind string

// A run begins once. The run ends, or its handler sees that its context has ended, and stops early.
const (
	Start Kind = "start"
	End   Kind = "end"
	Abort Kind = "abort"
)

// A Record is one line of a handler.
type Record struct {
	At   time.Duration `json:"at"`
	Kind Kind          `json:"kind"`
	// Process and Run name the run together.
	Process int `json:"process"`
	Run     int `json:"run"`
	Task    int `json:"task"` // its place in Case.Tasks
	// Charged is how many attempts the queue has counted against the task before this one.
	Charged int `json:"charged"`
	// Fence is the fencing token of the lease, 0 for none.
	Fence int64 `json:"fence"`
}

// A Fault strikes processes.
type Fault struct {
	At        time.Duration // for one that kills, when the processes were gone
	Processes []int
	Kills     bool          // the processes are gone
	Still     time.Duration // how long they stand still; 0 if they do not
}

func (f Fault) strikes(r *run) bool { return slices.Contains(f.Processes, r.process) && r.open(f.At) }

// A Case is what is judged.
type Case struct {
	Tasks   []string // the key of each, in the order in which they were enqueued
	Records []Record
	Faults  []Fault
	Closed  time.Duration // when the last look was taken
	Idle    time.Duration // after how long without a run a key is stuck
	Queued  int           // how many tasks the queue still had then
}

// Never is a time that has not come.
const Never time.Duration = -1

// A Verdict is what is found. Times are 0 if nothing waited for them.
type Verdict struct {
	// Overlaps is how many pairs of runs of one key were at work at once, and Longest for how long
	// at most. A process that is dead or stands still does no work.
	Overlaps int           `json:"overlaps"`
	Longest  time.Duration `json:"longest_overlap_ns"`
	// Late is how many runs came to their end after another run of the key had begun, and Fenced is
	// how many of these their fences would have kept from writing.
	Late   int `json:"late"`
	Fenced int `json:"fenced"`
	// Lost is how many tasks have not come to their end. The queue still has so many of them.
	Lost   int `json:"lost"`
	Queued int `json:"queued"`
	// Repeated is how many tasks came to their end more than once.
	Repeated int `json:"repeated"`
	// Disorder is how many tasks began after one of their key that was enqueued later. Only the
	// first run of each task counts.
	Disorder int `json:"out_of_order"`
	// Charged is how many attempts were counted against tasks in all.
	Charged int `json:"charged"`
	// Stuck is how many keys stood still at the end, with tasks left.
	Stuck int `json:"stuck"`
	// NextOfKey is the longest time from a fault to the next start of a task of the key that was
	// at work there, while other tasks of the key were left. Rerun is the same for the next run of
	// the task itself.
	NextOfKey time.Duration `json:"next_of_key_ns"`
	Rerun     time.Duration `json:"rerun_ns"`
}

// A run is one call of a handler.
type run struct {
	process, task int
	start, end    time.Duration
	ended         bool // came to its end; else it stopped early, died or goes on
	fence         int64
	charged       int
	still         []span // in which its process stood still
}

type span struct{ from, to time.Duration }

// open includes the end, as a kill is the end of a run.
func (r *run) open(at time.Duration) bool { return r.start <= at && at <= r.end }

// Judge reads a case. It panics on records of tasks that nobody has enqueued.
func Judge(c Case) Verdict {
	all := runs(c)
	byKey, byTask := make(map[string][]*run), make(map[int][]*run)
	for _, r := range all {
		byKey[c.Tasks[r.task]] = append(byKey[c.Tasks[r.task]], r)
		byTask[r.task] = append(byTask[r.task], r)
	}
	v := Verdict{Queued: c.Queued}
	v.tasks(c, byTask)
	open := make(map[string]bool) // keys with tasks that have not come to their end
	for task, key := range c.Tasks {
		open[key] = open[key] || !slices.ContainsFunc(byTask[task], (*run).done)
	}
	for key, ofKey := range byKey {
		v.overlaps(ofKey)
		v.late(ofKey)
		v.order(ofKey)
		last := slices.MaxFunc(ofKey, func(a, b *run) int { return cmp.Compare(a.end, b.end) })
		if open[key] && last.end < c.Closed-c.Idle {
			v.Stuck++
		}
	}
	for key := range open {
		if open[key] && len(byKey[key]) == 0 {
			v.Stuck++
		}
	}
	for _, f := range c.Faults {
		for _, r := range all {
			if !f.strikes(r) {
				continue
			}
			key := c.Tasks[r.task]
			if others(c, byTask, r.task, f.At) {
				v.NextOfKey = longer(v.NextOfKey, next(f.At, byKey[key], open[key]))
			}
			v.Rerun = longer(v.Rerun, next(f.At, byTask[r.task], !slices.ContainsFunc(byTask[r.task], (*run).done)))
		}
	}
	return v
}

// others reports whether other tasks of the key had not come to their end then.
func others(c Case, byTask map[int][]*run, task int, at time.Duration) bool {
	for other, key := range c.Tasks {
		over := func(r *run) bool { return r.ended && r.end <= at }
		if other != task && key == c.Tasks[task] && !slices.ContainsFunc(byTask[other], over) {
			return true
		}
	}
	return false
}

func (r *run) done() bool { return r.ended }

// runs puts the records together, in order of their starts.
func runs(c Case) (all []*run) {
	type name struct{ process, run int }
	known := make(map[name]*run)
	records := slices.SortedStableFunc(slices.Values(c.Records), func(a, b Record) int { return cmp.Compare(a.At, b.At) })
	for _, rec := range records {
		id := name{rec.Process, rec.Run}
		if rec.Kind == Start {
			known[id] = &run{
				process: rec.Process, task: rec.Task, start: rec.At, end: c.Closed,
				fence: rec.Fence, charged: rec.Charged,
			}
			all = append(all, known[id])
			continue
		}
		known[id].end, known[id].ended = rec.At, rec.Kind == End
	}
	for _, f := range c.Faults {
		for _, r := range all {
			switch {
			case !f.strikes(r):
			case f.Kills:
				r.end = min(r.end, f.At)
			case f.Still > 0:
				r.still = append(r.still, span{f.At, f.At + f.Still})
			}
		}
	}
	return all
}

// tasks counts what became of each task.
func (v *Verdict) tasks(c Case, byTask map[int][]*run) {
	for task := range c.Tasks {
		ends, charged := 0, 0
		for _, r := range byTask[task] {
			if r.ended {
				ends++
			}
			charged = max(charged, r.charged)
		}
		v.Charged += charged
		switch {
		case ends == 0:
			v.Lost++
		case ends > 1:
			v.Repeated++
		}
	}
	v.Queued = min(v.Queued, v.Lost)
}

// overlaps looks at each pair of runs of a key.
func (v *Verdict) overlaps(ofKey []*run) {
	for i, a := range ofKey {
		for _, b := range ofKey[i+1:] {
			if together := together(a, b); together > 0 {
				v.Overlaps++
				v.Longest = max(v.Longest, together)
			}
		}
	}
}

// together returns for how long two runs were at work at once.
func together(a, b *run) (sum time.Duration) {
	for _, x := range a.atWork() {
		for _, y := range b.atWork() {
			sum += max(0, min(x.to, y.to)-max(x.from, y.from))
		}
	}
	return sum
}

// atWork returns when the run's process did not stand still.
func (r *run) atWork() (all []span) {
	from := r.start
	for _, s := range r.still {
		all = append(all, span{from, min(s.from, r.end)})
		from = s.to
	}
	if from < r.end {
		all = append(all, span{from, r.end})
	}
	return all
}

// late counts runs that ended after another one of the key had begun.
func (v *Verdict) late(ofKey []*run) {
	for _, r := range ofKey {
		overtaken, fenced := false, false
		for _, other := range ofKey {
			if r.ended && other != r && r.start < other.start && other.start < r.end {
				overtaken = true
				fenced = fenced || 0 < r.fence && r.fence < other.fence
			}
		}
		if overtaken {
			v.Late++
		}
		if fenced {
			v.Fenced++
		}
	}
}

// order counts tasks that began after a later one.
func (v *Verdict) order(ofKey []*run) {
	begun := make(map[int]bool)
	var starts []int // of the tasks of the key, each once
	for _, r := range ofKey {
		if !begun[r.task] {
			starts = append(starts, r.task)
		}
		begun[r.task] = true
	}
	for i, task := range starts {
		if slices.ContainsFunc(starts[:i], func(before int) bool { return before > task }) {
			v.Disorder++
		}
	}
}

// next returns the time from a fault to the next start, 0 if nothing is left to start.
func next(fault time.Duration, of []*run, left bool) time.Duration {
	i := slices.IndexFunc(of, func(r *run) bool { return r.start > fault })
	switch {
	case i >= 0:
		return of[i].start - fault
	case left:
		return Never
	}
	return 0
}

func longer(a, b time.Duration) time.Duration {
	if a == Never || b == Never {
		return Never
	}
	return max(a, b)
}
