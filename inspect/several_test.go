package inspect_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/queue"
)

// Of a task that needs several resources the verdict is about the one that keeps it waiting; while it runs, each of its locks
// says so.
func TestSeveralResources(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve()
	release := b.holder()
	b.hold(1)
	defer b.let(1)
	free := "a free one, " + b.resource
	id := b.enqueue(job{Res: queue.AllOf(b.resource, free), N: 1})
	e := b.awaitWhy(id, inspect.StateWaiting)
	if e.Resource != b.resource || !slices.Equal(e.Resources, []string{free, b.resource}) || e.Lock == nil || e.Lock.State != inspect.Held {
		t.Errorf("want the held one of two, have %+v", e)
	}
	behind := b.enqueue(job{Res: free, N: 2})
	if e = b.awaitWhy(behind, inspect.StateWaiting); e.Position != 2 || e.Resources != nil {
		t.Errorf("want it second in the line of a free lock, have %+v", e)
	}
	release()
	e = b.awaitWhy(id, inspect.StateRunning)
	if !strings.HasPrefix(e.Verdict.Wrong, "No") {
		t.Errorf("have %q", e.Verdict.Wrong)
	}
	list := get(b, b.inspector.Held)
	for _, resource := range []string{free, b.resource} {
		at := slices.IndexFunc(list.Locks, func(l inspect.Lock) bool { return l.Resource == resource })
		if at < 0 || list.Locks[at].Task == nil || list.Locks[at].Task.ID != id {
			t.Errorf("%s: want the task as its holder, have %+v", resource, list.Locks)
		}
	}
	lost := get(b, b.inspector.Lost)
	if slices.ContainsFunc(lost, func(l inspect.Lost) bool { return l.Task.ID == id }) {
		t.Errorf("have it among those that have lost their locks: %+v", lost)
	}
}

// bulk is a job that runs together with others.
type bulk job

func (bulk) Kind() string       { return "test:bulk" }
func (b bulk) Resource() string { return b.Res }

// The tasks of a batch run, and the first of them has the lock.
func TestBatch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve()
	release := b.holder()
	b.hold(1)
	defer b.let(1)
	var ids []string
	for range 3 {
		ids = append(ids, b.enqueue(bulk{Res: b.resource, N: 1}))
		b.awaitWhy(ids[len(ids)-1], inspect.StateWaiting)
	}
	release()
	for _, id := range ids {
		e := b.awaitWhy(id, inspect.StateRunning)
		if e.Lock == nil || !strings.Contains(e.Lock.Holder, ids[0]) || (e.Lock.Task != nil) != (id == ids[0]) || !strings.HasPrefix(e.Verdict.Wrong, "No") {
			t.Errorf("want it at work under the lock of the first, have %+v, lock %+v", e, e.Lock)
		}
	}
}
