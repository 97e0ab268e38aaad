package trace

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sidingq/siding/bench/internal/workload"
	"github.com/sidingq/siding/internal/sleep"
)

// A Recorder makes a trace in this process. A Recorder is safe for concurrent use.
type Recorder struct {
	start time.Time
	tasks []workload.Task
	all   chan struct{} // closed when all have run

	mu    sync.Mutex
	trace Trace
	done  []bool
	left  int // tasks that have not run
}

// NewRecorder returns one for a run with these tasks.
func NewRecorder(tasks []workload.Task) *Recorder {
	never := slices.Repeat([]time.Duration{Never}, len(tasks))
	return &Recorder{
		start: time.Now(), tasks: tasks, all: make(chan struct{}),
		trace: Trace{Called: never, Stored: slices.Clone(never), Runs: make([]Run, 0, len(tasks))},
		done:  make([]bool, len(tasks)), left: len(tasks),
	}
}

// Begin notes that the workers are there.
func (r *Recorder) Begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trace.Began = time.Since(r.start)
}

// Call enqueues tasks with enqueue, and notes when.
func (r *Recorder) Call(tasks []workload.Task, enqueue func() error) error {
	r.mark(r.trace.Called, tasks)
	err := enqueue()
	if err == nil {
		r.mark(r.trace.Stored, tasks)
	}
	return err
}

func (r *Recorder) mark(times []time.Duration, tasks []workload.Task) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Since(r.start)
	for _, t := range tasks {
		times[t.ID] = now
	}
}

// Handle is the handler of a task: it works for as long as the plan says. If ctx ends
// before, the run counts for nothing.
func (r *Recorder) Handle(ctx context.Context, task int) error {
	run := Run{Task: task, Start: time.Since(r.start)}
	known := task >= 0 && task < len(r.tasks)
	if known && r.tasks[task].Work > 0 {
		if err := sleep.For(ctx, r.tasks[task].Work); err != nil {
			return err
		}
	}
	run.End = time.Since(r.start)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trace.Runs = append(r.trace.Runs, run)
	if !known || r.done[task] {
		return nil
	}
	r.done[task] = true
	if r.left--; r.left == 0 {
		close(r.all)
	}
	return nil
}

// All is closed when every task has run.
func (r *Recorder) All() <-chan struct{} { return r.all }

// Trace returns what was recorded so far.
func (r *Recorder) Trace() Trace {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.trace
	t.Called, t.Stored, t.Runs = slices.Clone(t.Called), slices.Clone(t.Stored), slices.Clone(t.Runs)
	return t
}
