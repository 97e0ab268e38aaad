package trace_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidingq/siding/bench/internal/trace"
	"github.com/sidingq/siding/bench/internal/workload"
)

// tasks are three on one key and one alone.
func tasks() []workload.Task {
	return []workload.Task{{ID: 0, Key: "a"}, {ID: 1, Key: "a"}, {ID: 2, Key: "b"}, {ID: 3, Key: "a"}}
}

// good is what happened in a run without faults: 3 was enqueued when 1 had ended.
func good() trace.Trace {
	return trace.Trace{
		Began:  1,
		Called: []time.Duration{10, 12, 14, 60},
		Stored: []time.Duration{11, 13, 15, 61},
		Runs:   []trace.Run{{Task: 0, Start: 20, End: 30}, {Task: 2, Start: 21, End: 90}, {Task: 1, Start: 33, End: 50}, {Task: 3, Start: 70, End: 80}},
	}
}

// TestCheck plants one fault after the other.
func TestCheck(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		plant func(*trace.Trace)
		want  string // of the error; "" for none
	}{
		{"no fault", func(*trace.Trace) {}, ""},
		{"one begins as the other ends", func(tr *trace.Trace) { tr.Runs[2].Start = 30 }, ""},
		{"one ran again", func(tr *trace.Trace) { tr.Runs = append(tr.Runs, trace.Run{Task: 0, Start: 51, End: 52}) }, ""},
		{"one is left", func(tr *trace.Trace) { tr.Runs = tr.Runs[:3]; tr.Left = 1 }, ""},
		{"one was never enqueued", func(tr *trace.Trace) {
			tr.Runs, tr.Called[3], tr.Stored[3] = tr.Runs[:3], trace.Never, trace.Never
		}, ""},
		{"the call that enqueues it was cut off", func(tr *trace.Trace) { tr.Runs, tr.Stored[3] = tr.Runs[:3], trace.Never }, ""},
		{"one is lost", func(tr *trace.Trace) { tr.Runs = tr.Runs[:3] }, "task 3, and the queue has only 0"},
		{"two are lost, one is left", func(tr *trace.Trace) { tr.Runs = tr.Runs[:2]; tr.Left = 1 }, "2 tasks have not run"},
		{"one ran twice in place of another", func(tr *trace.Trace) { tr.Runs[3].Task = 1 }, "task 3"},
		{"an unknown one", func(tr *trace.Trace) { tr.Runs[1].Task = 4 }, "unknown number 4"},
		{"a negative one", func(tr *trace.Trace) { tr.Runs[1].Task = -1 }, "unknown number -1"},
		{"one that nobody enqueued", func(tr *trace.Trace) { tr.Called[2], tr.Stored[2] = trace.Never, trace.Never }, "task 2 has run before"},
		{"one before it was enqueued", func(tr *trace.Trace) { tr.Runs[0].Start = 9 }, "task 0 has run before"},
		{"an end before its start", func(tr *trace.Trace) { tr.Runs[0].End = 19 }, "task 0 has ended before"},
		{"2 at once", func(tr *trace.Trace) { tr.Runs[2].Start = 29 }, "2 at once on a: task 0 from 20ns to 30ns, task 1"},
		{"2 at once, one inside the other", func(tr *trace.Trace) { tr.Runs[0].End = 60 }, "2 at once on a"},
		{"2 at once, of which one ran before", func(tr *trace.Trace) {
			tr.Runs = append(tr.Runs, trace.Run{Task: 0, Start: 75, End: 85})
		}, "2 at once on a"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tr := good()
			tc.plant(&tr)
			err := tr.Check(workload.Plan{Tasks: tasks()}, true)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("want an error with %q, have %v", tc.want, err)
			}
			if err := tr.Check(workload.Plan{Tasks: tasks()}, false); strings.Contains(tc.want, "2 at once") && err != nil {
				t.Errorf("want 2 at once allowed where nothing excludes it, have %v", err)
			}
		})
	}
}

// A task works on both of its keys.
func TestCheckOfPairs(t *testing.T) {
	t.Parallel()
	p := workload.Plan{Tasks: []workload.Task{{ID: 0, Key: "a", Also: "b"}, {ID: 1, Key: "b", Also: "c"}}}
	times := []time.Duration{1, 2}
	for start, want := range map[time.Duration]bool{20: true, 19: false} {
		tr := trace.Trace{Called: times, Stored: times, Runs: []trace.Run{{Task: 0, Start: 10, End: 20}, {Task: 1, Start: start, End: 30}}}
		if err := tr.Check(p, true); (err == nil) != want {
			t.Errorf("a start at %d: have %v", start, err)
		}
	}
}

// A task that begins within a round trip has gone around the network.
func TestCheckDelay(t *testing.T) {
	t.Parallel()
	tr := good() // the first begins 7 after the call
	if err := tr.CheckDelay(7); err != nil {
		t.Error(err)
	}
	if err := tr.CheckDelay(8); err == nil || !strings.Contains(err.Error(), "task 2 has started 7ns after it was enqueued") {
		t.Errorf("want it noticed, have %v", err)
	}
}

func TestTimes(t *testing.T) {
	t.Parallel()
	tr := good()
	alone := workload.Plan{Tasks: tasks()}.Alone()
	if diff := cmp.Diff([]bool{false, false, true, false}, alone); diff != "" {
		t.Errorf("alone (-want +have):\n%s", diff)
	}
	if have := tr.Makespan(); have != 80 {
		t.Errorf("makespan: want 80, from the first call, have %d", have)
	}
	if have := tr.Longest(tasks()); have != 69 {
		t.Errorf("the longest key: want 69, have %d", have)
	}
	if diff := cmp.Diff([]time.Duration{7}, tr.Latencies(alone)); diff != "" {
		t.Errorf("latencies (-want +have):\n%s", diff)
	}
	if diff := cmp.Diff([]time.Duration{3}, tr.HandOffs(tasks())); diff != "" {
		t.Errorf("want the hand-off from 0 to 1 alone, as nobody waited when 1 ended (-want +have):\n%s", diff)
	}
	tr.Runs = append(tr.Runs, trace.Run{Task: 2, Start: 95, End: 96})
	slices.Reverse(tr.Runs)
	if diff := cmp.Diff([]time.Duration{7}, tr.Latencies(alone)); diff != "" {
		t.Errorf("latencies where a task ran again, to its first run (-want +have):\n%s", diff)
	}
	tr = good()
	tr.Began = 15
	if have := tr.Makespan(); have != 75 {
		t.Errorf("makespan: want 75, from when the workers were there, have %d", have)
	}
	if have := tr.Done(); have != 4 {
		t.Errorf("want 4 done, have %d", have)
	}
}

func TestInversions(t *testing.T) {
	t.Parallel()
	tr := good()
	if n, of := tr.Inversions(tasks()); n != 0 || of != 2 {
		t.Errorf("want 0 of 2, have %d of %d", n, of)
	}
	tr.Runs[0].Task, tr.Runs[3].Task = 3, 0
	slices.Reverse(tr.Runs) // their order does not matter
	if n, of := tr.Inversions(tasks()); n != 2 || of != 2 {
		t.Errorf("want 2 of 2, have %d of %d", n, of)
	}
}

// TestHandleCutOff: what was cut off does not count as done.
func TestHandleCutOff(t *testing.T) {
	t.Parallel()
	r := trace.NewRecorder([]workload.Task{{Work: time.Hour}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Handle(ctx, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("want it cut off, have %v", err)
	}
	if tr := r.Trace(); tr.Done() != 0 {
		t.Errorf("want nothing done, have %+v", tr)
	}
}
