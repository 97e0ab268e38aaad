// Package trace records what happened to each task in a run of a benchmark, checks that, and
// computes times.
package trace

import (
	"cmp"
	"slices"
	"time"

	"github.com/sidingq/siding/bench/internal/workload"
)

// Never stands for the time of what did not happen.
const Never = time.Duration(-1 << 63)

// A Run is one call of a task's handler, from its first statement to its last.
type Run struct {
	Task       int
	Start, End time.Duration
}

// A Trace is what happened. All times are on one monotonic clock.
type Trace struct {
	Began  time.Duration   // when the workers were there, with nothing to do or about to start
	Called []time.Duration // by task: when its enqueueing began, or Never
	Stored []time.Duration // by task: when it was enqueued, or Never
	Runs   []Run           // that came to their end, in any order
	Left   int             // tasks that the queue still has in the end, not counting those it gave up
}

// Done returns how many tasks have run.
func (t *Trace) Done() int {
	done := make(map[int]bool)
	for _, r := range t.Runs {
		done[r.Task] = true
	}
	return len(done)
}

// Start returns when the work could begin: when both the first task and the workers were there.
func (t *Trace) Start() time.Duration { return max(t.Began, slices.Min(t.Called)) }

// Makespan returns the time from the start to the end of the last run.
func (t *Trace) Makespan() time.Duration {
	end := t.Start()
	for _, r := range t.Runs {
		end = max(end, r.End)
	}
	return end - t.Start()
}

// Latencies returns the times from the enqueueing of the given tasks to the start of their first
// runs. For tasks that were enqueued before the workers were there it is the time since then.
func (t *Trace) Latencies(of []bool) []time.Duration {
	first := make(map[int]time.Duration)
	for _, r := range t.Runs {
		if start, known := first[r.Task]; of[r.Task] && (!known || r.Start < start) {
			first[r.Task] = r.Start
		}
	}
	var all []time.Duration
	for task, start := range first {
		all = append(all, start-max(t.Called[task], t.Began))
	}
	return all
}

// byKey returns the first runs of all tasks in order of their start, by key.
func (t *Trace) byKey(tasks []workload.Task) map[string][]Run {
	keys := make(map[string][]Run)
	seen := make(map[int]bool)
	for _, r := range slices.SortedFunc(slices.Values(t.Runs), byStart) {
		if !seen[r.Task] {
			seen[r.Task] = true
			for _, key := range tasks[r.Task].Keys() {
				keys[key] = append(keys[key], r)
			}
		}
	}
	return keys
}

// Longest returns how long the handlers of one key took in all, of the key with the longest. No
// queue that runs them one by one can be faster.
func (t *Trace) Longest(tasks []workload.Task) (longest time.Duration) {
	for _, runs := range t.byKey(tasks) {
		var sum time.Duration
		for _, r := range runs {
			sum += r.End - r.Start
		}
		longest = max(longest, sum)
	}
	return longest
}

func byStart(a, b Run) int { return cmp.Compare(a.Start, b.Start) }

// HandOffs returns the times for which a key lay idle although a task for the key was waiting. Such
// a time lasts from the end of one run to the start of the next one with the key.
func (t *Trace) HandOffs(tasks []workload.Task) []time.Duration {
	stored := make(map[string][]time.Duration)
	for i, at := range t.Stored {
		for _, key := range tasks[i].Keys() {
			if at != Never {
				stored[key] = append(stored[key], at)
			}
		}
	}
	var all []time.Duration
	for key, runs := range t.byKey(tasks) {
		slices.Sort(stored[key])
		for i, r := range runs[:len(runs)-1] {
			there, _ := slices.BinarySearch(stored[key], r.End)
			if there > i+1 { // more than have begun
				all = append(all, runs[i+1].Start-r.End)
			}
		}
	}
	return all
}

// Inversions counts tasks that ran behind another one of their key. It also counts those of them
// that had been enqueued before that one.
func (t *Trace) Inversions(tasks []workload.Task) (inverted, of int) {
	for _, runs := range t.byKey(tasks) {
		for i, r := range runs[1:] {
			of++
			if r.Task < runs[i].Task {
				inverted++
			}
		}
	}
	return inverted, of
}
