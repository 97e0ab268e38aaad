package trace

import (
	"fmt"
	"slices"
	"time"

	"github.com/sidingq/siding/bench/internal/workload"
)

// Check returns an error if the trace is not that of a queue that works. Then a task that nobody
// enqueued has run, or a task is lost: it has not run, and the queue does not have it any more. If
// the queue promises to exclude that, two tasks with one key that ran at once are an error, too.
func (t *Trace) Check(p workload.Plan, excludes bool) error {
	tasks := p.Tasks
	for _, r := range t.Runs {
		switch {
		case r.Task < 0 || r.Task >= len(tasks):
			return fmt.Errorf("a task with the unknown number %d has run", r.Task)
		case t.Called[r.Task] == Never || r.Start < t.Called[r.Task]:
			return fmt.Errorf("task %d has run before it was enqueued", r.Task)
		case r.End < r.Start:
			return fmt.Errorf("task %d has ended before it began", r.Task)
		}
	}
	if excludes {
		if err := t.checkHolders(tasks); err != nil {
			return err
		}
	}
	return t.checkLost()
}

// CheckDelay returns an error if a task has started within less than a round trip of the call that
// enqueued it. The queue has then not gone through the network.
func (t *Trace) CheckDelay(roundTrip time.Duration) error {
	for _, r := range t.Runs {
		if took := r.Start - t.Called[r.Task]; took < roundTrip {
			return fmt.Errorf("task %d has started %v after it was enqueued, sooner than a round trip of %v permits", r.Task, took, roundTrip)
		}
	}
	return nil
}

// checkHolders looks at all runs, also those of a task that ran again.
func (t *Trace) checkHolders(tasks []workload.Task) error {
	last := make(map[string]Run)
	for _, r := range slices.SortedFunc(slices.Values(t.Runs), byStart) {
		for _, key := range tasks[r.Task].Keys() {
			if before, known := last[key]; known && before.End > r.Start {
				return fmt.Errorf("2 at once on %s: task %d from %v to %v, task %d from %v to %v",
					key, before.Task, before.Start, before.End, r.Task, r.Start, r.End)
			}
			last[key] = r
		}
	}
	return nil
}

func (t *Trace) checkLost() error {
	done := make(map[int]bool)
	for _, r := range t.Runs {
		done[r.Task] = true
	}
	missing, example := 0, 0
	for task, at := range t.Stored {
		if at != Never && !done[task] {
			missing++
			example = task
		}
	}
	if missing > t.Left {
		return fmt.Errorf("%d tasks have not run, such as task %d, and the queue has only %d", missing, example, t.Left)
	}
	return nil
}
