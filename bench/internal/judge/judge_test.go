package judge_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidingq/siding/bench/internal/judge"
)

const s = time.Second

// ran returns the records of a run by a process. The number of the run is that of its task, so a
// process runs a task once.
func ran(process, task int, start time.Duration, kind judge.Kind, end time.Duration) []judge.Record {
	r := judge.Record{Process: process, Run: task, Task: task, At: start, Kind: judge.Start}
	last := r
	last.At, last.Kind = end, kind
	if kind == judge.Start { // it has no end
		return []judge.Record{r}
	}
	return []judge.Record{r, last}
}

func charged(attempts int, records []judge.Record) []judge.Record {
	for i := range records {
		records[i].Charged = attempts
	}
	return records
}

func fenced(fence int64, records []judge.Record) []judge.Record {
	for i := range records {
		records[i].Fence = fence
	}
	return records
}

func TestJudge(t *testing.T) {
	t.Parallel()
	one, two := []string{"a"}, []string{"a", "a"}
	three := []string{"a", "a", "a"}
	for _, tc := range []struct {
		name   string
		tasks  []string
		runs   [][]judge.Record
		faults []judge.Fault
		queued int
		want   judge.Verdict
	}{
		{
			name: "nothing is wrong", tasks: []string{"a", "b", "a"},
			runs: [][]judge.Record{ran(1, 0, 1*s, judge.End, 2*s), ran(1, 1, 1*s, judge.End, 3*s), ran(2, 2, 2*s, judge.End, 3*s)},
		},
		{
			name: "two of a key at once", tasks: two,
			runs: [][]judge.Record{ran(1, 0, 1*s, judge.End, 4*s), ran(2, 1, 3*s, judge.End, 5*s)},
			want: judge.Verdict{Overlaps: 1, Longest: 1 * s, Late: 1},
		},
		{
			name: "the first of two stops early", tasks: one,
			runs: [][]judge.Record{ran(1, 0, 1*s, judge.Abort, 4*s), ran(2, 0, 3*s, judge.End, 5*s)},
			want: judge.Verdict{Overlaps: 1, Longest: 1 * s},
		},
		{
			name: "the dead overlap with nobody", tasks: two,
			runs:   [][]judge.Record{ran(1, 0, 1*s, judge.Start, 0), ran(2, 1, 4*s, judge.End, 5*s), ran(2, 0, 8*s, judge.End, 9*s)},
			faults: []judge.Fault{{At: 2 * s, Processes: []int{1}, Kills: true}},
			want:   judge.Verdict{NextOfKey: 2 * s, Rerun: 6 * s},
		},
		{
			name: "a run without an end goes on", tasks: one,
			runs: [][]judge.Record{ran(1, 0, 1*s, judge.Start, 0), ran(2, 0, 98*s, judge.End, 99*s)},
			want: judge.Verdict{Overlaps: 1, Longest: 1 * s},
		},
		{
			name: "those that stand still overlap with nobody", tasks: two,
			runs:   [][]judge.Record{ran(1, 0, 1*s, judge.Abort, 10*s), ran(2, 1, 4*s, judge.End, 5*s), ran(2, 0, 11*s, judge.End, 12*s)},
			faults: []judge.Fault{{At: 2 * s, Processes: []int{1}, Still: 8 * s}},
			want:   judge.Verdict{NextOfKey: 2 * s, Rerun: 9 * s},
		},
		{
			name: "one wakes up and works on", tasks: two,
			runs:   [][]judge.Record{ran(1, 0, 1*s, judge.End, 11*s), ran(2, 1, 9*s, judge.End, 12*s)},
			faults: []judge.Fault{{At: 2 * s, Processes: []int{1}, Still: 8 * s}},
			want:   judge.Verdict{Overlaps: 1, Longest: 1 * s, Late: 1, NextOfKey: 7 * s},
		},
		{
			name: "a fence refuses the late one", tasks: two,
			runs: [][]judge.Record{fenced(1, ran(1, 0, 1*s, judge.End, 11*s)), fenced(2, ran(2, 1, 4*s, judge.End, 5*s))},
			want: judge.Verdict{Overlaps: 1, Longest: 1 * s, Late: 1, Fenced: 1},
		},
		{
			name: "a task is lost, and one waits", tasks: three, queued: 1,
			runs: [][]judge.Record{ran(1, 0, 80*s, judge.End, 81*s)},
			want: judge.Verdict{Lost: 2, Queued: 1},
		},
		{
			name: "a key is stuck", tasks: two, queued: 1,
			runs: [][]judge.Record{ran(1, 0, 1*s, judge.End, 2*s)},
			want: judge.Verdict{Lost: 1, Queued: 1, Stuck: 1},
		},
		{
			name: "a key that never ran is stuck", tasks: one, queued: 1,
			want: judge.Verdict{Lost: 1, Queued: 1, Stuck: 1},
		},
		{
			name: "a killed task never runs again", tasks: one,
			runs:   [][]judge.Record{ran(1, 0, 79*s, judge.Start, 0)},
			faults: []judge.Fault{{At: 80 * s, Processes: []int{1}, Kills: true}},
			want:   judge.Verdict{Lost: 1, Rerun: judge.Never},
		},
		{
			name: "a killed task never runs again, and keeps its key", tasks: two, queued: 2,
			runs:   [][]judge.Record{ran(1, 0, 9*s, judge.Start, 0)},
			faults: []judge.Fault{{At: 10 * s, Processes: []int{1}, Kills: true}},
			want:   judge.Verdict{Lost: 2, Queued: 2, Stuck: 1, NextOfKey: judge.Never, Rerun: judge.Never},
		},
		{
			name: "a task ends twice, and was charged", tasks: one,
			runs: [][]judge.Record{ran(1, 0, 1*s, judge.End, 2*s), charged(2, ran(2, 0, 3*s, judge.End, 4*s))},
			want: judge.Verdict{Repeated: 1, Charged: 2},
		},
		{
			name: "the first task comes last", tasks: three,
			runs: [][]judge.Record{ran(1, 1, 1*s, judge.End, 2*s), ran(1, 2, 3*s, judge.End, 4*s), ran(1, 0, 5*s, judge.End, 6*s)},
			want: judge.Verdict{Disorder: 1},
		},
		{
			name: "a struck task may come later", tasks: two,
			runs:   [][]judge.Record{ran(1, 0, 1*s, judge.Start, 0), ran(2, 1, 3*s, judge.End, 4*s), ran(2, 0, 5*s, judge.End, 6*s)},
			faults: []judge.Fault{{At: 2 * s, Processes: []int{1}, Kills: true}},
			want:   judge.Verdict{NextOfKey: 1 * s, Rerun: 3 * s},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := judge.Case{Tasks: tc.tasks, Faults: tc.faults, Closed: 100 * s, Idle: 30 * s, Queued: tc.queued}
			for _, r := range tc.runs {
				c.Records = append(c.Records, r...)
			}
			if diff := cmp.Diff(tc.want, judge.Judge(c)); diff != "" {
				t.Errorf("want -, have +\n%s", diff)
			}
		})
	}
}
