package chaos

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	s  = time.Second
	ms = time.Millisecond
	us = time.Microsecond
)

// story is a history in which nothing goes wrong: a and b on one thing, by two
// workers.
func story() *History {
	return &History{
		Tasks: map[string]*Task{
			"a": {ID: "a", Resource: "thing", Fate: FateOK, Accepted: 1 * s},
			"b": {ID: "b", Resource: "thing", Fate: FateOK, Accepted: 1 * s},
		},
		Runs: []Run{
			{Task: "a", Process: "w1", Resource: "thing", Fence: 10, Begin: 2 * s, Returned: 3 * s, Outcome: Done},
			{Task: "b", Process: "w2", Resource: "thing", Fence: 20, Begin: 4 * s, Returned: 5 * s, Outcome: Done},
		},
		Effects:   []Effect{{Task: "a", Resource: "thing", Fence: 10}, {Task: "b", Resource: "thing", Fence: 20}},
		Processes: map[string]*Process{"w1": {Name: "w1", Exited: 60 * s}, "w2": {Name: "w2", Exited: 60 * s}},
		Archived:  map[string]string{},
	}
}

// A change makes a history another one.
type change = func(*History)

// A row is a history that is changed, and what is to be found in it.
type row struct {
	name    string
	want    string // part of the one finding; empty for none
	changes []change
}

func with(name, want string, changes ...change) row { return row{name, want, changes} }

// findEach changes the history as each row says, and wants that found, and nothing else.
func findEach(t *testing.T, history func() *History, rows ...row) {
	t.Helper()
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			h := history()
			for _, change := range r.changes {
				change(h)
			}
			wantFinding(t, h, r.want)
		})
	}
}

// wantFinding fails the test unless the one finding about h has the text want, or there is none if want
// is empty.
func wantFinding(t *testing.T, h *History, want string) {
	t.Helper()
	have := Check(h).Wrong
	if want == "" && len(have) > 0 || want != "" && (len(have) != 1 || !strings.Contains(have[0], want)) {
		t.Errorf("want %q, have %q", want, have)
	}
}

// Faults.

func fault(f Fault) change { return func(h *History) { h.Faults = append(h.Faults, f) } }

func comes(k Kind, from, to time.Duration) change { return fault(Fault{Kind: k, Start: from, End: to}) }

func hang(from, to time.Duration) change { return comes(HangRedis, from, to) }

func kill(process string, from, to time.Duration) change {
	return fault(Fault{Kind: KillWorker, Process: process, Start: from, End: to})
}

// deleteLock has an operator delete the key of a lock.
func deleteLock(resource string, at time.Duration) change {
	return fault(Fault{Kind: DeleteLock, Resource: resource, Start: at, End: at})
}

// forget has Redis forget a task when it is restarted empty.
func forget(id string, from, to time.Duration) change {
	return fault(Fault{Kind: RestartEmpty, Start: from, End: to, Forgot: map[string]bool{id: true}})
}

// stop has a process stand still.
func stop(process string, from, to time.Duration) change {
	return func(h *History) {
		h.Processes[process].Stops = append(h.Processes[process].Stops, Span{From: from, To: to})
	}
}

func exit(process string, at time.Duration) change {
	return func(h *History) { h.Processes[process].Exited = at }
}

// What becomes of tasks.

// add adds a task and its runs, and the effect of one that is done.
func add(h *History, t *Task, runs ...Run) {
	h.Tasks[t.ID] = t
	for _, r := range runs {
		r.Task, r.Resource = t.ID, t.Resource
		h.Runs = append(h.Runs, r)
		if r.Outcome == Done {
			h.Effects = append(h.Effects, Effect{Task: r.Task, Resource: r.Resource, Fence: r.Fence})
		}
	}
	slices.SortFunc(h.Effects, func(a, b Effect) int { return int(a.Fence - b.Fence) })
}

// added is add, as a change.
func added(t Task, runs ...Run) change { return func(h *History) { add(h, &t, runs...) } }

// taskC adds task c, on the thing unless it says otherwise.
func taskC(t Task) change {
	return func(h *History) {
		t.ID, t.Resource, t.Fate = "c", cmp.Or(t.Resource, "thing"), cmp.Or(t.Fate, FateOK)
		h.Tasks["c"] = &t
	}
}

// archived has task c in asynq's archive.
func archived(last string) change { return func(h *History) { h.Archived["c"] = last } }

func requeue(id string, at time.Duration) change {
	return func(h *History) { h.Requeued = append(h.Requeued, Requeued{Task: id, At: at}) }
}

// done returns a run of w2 that is done.
func done(begin time.Duration) Run {
	return Run{Process: "w2", Fence: int64(begin / ms), Begin: begin, Returned: begin + 100*ms, Outcome: Done}
}

// failed returns a run of w2 that fails.
func failed(begin time.Duration) Run {
	r := done(begin)
	r.Outcome = Failed
	return r
}
