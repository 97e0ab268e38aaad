package inspect_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/testenv/expect"
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
	expect.That(t, e.Resource == b.resource && slices.Equal(e.Resources, []string{free, b.resource}) && e.Lock != nil && e.Lock.State == inspect.Held, "want the held one of two, have %+v", e)
	behind := b.enqueue(job{Res: free, N: 2})
	if e = b.awaitWhy(behind, inspect.StateWaiting); e.Position != 2 || e.Resources != nil {
		t.Errorf("want it second in the line of a free lock, have %+v", e)
	}
	release()
	e = b.awaitWhy(id, inspect.StateRunning)
	expect.That(t, strings.HasPrefix(e.Verdict.Wrong, "No"), "have %q", e.Verdict.Wrong)
	list := get(b, b.inspector.Held)
	for _, resource := range []string{free, b.resource} {
		at := slices.IndexFunc(list.Locks, func(l inspect.Lock) bool { return l.Resource == resource })
		expect.That(t, at >= 0 && list.Locks[at].Task != nil && list.Locks[at].Task.ID == id, "%s: want the task as its holder, have %+v", resource, list.Locks)
	}
}

// One of several locks is limited, and another task has a permit of it, too. The verdict is about the lock that a task lacks.
func TestSeveralResourcesAndALimit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, limited := "a first one, "+b.resource, "limited:"+b.resource
	b.must(queue.SetLimit(b.Context(), b.rdb, queue.LimitOverride{Pattern: limited, Holders: 3, By: "ann", Reason: "test"}))
	b.Cleanup(func() { _, _ = queue.UnsetLimit(context.WithoutCancel(b.Context()), b.rdb, "", limited) })
	b.serve()
	end := make(chan struct{})
	defer close(end)
	b.inner[1] = func(context.Context) error { <-end; return nil } // it ignores the end of its context
	b.inner[2] = b.inner[1]
	b.enqueue(job{Res: limited, N: 2})
	b.awaitRun(2)
	id := b.enqueue(job{Res: queue.AllOf(first, limited, b.resource), N: 1})
	b.awaitRun(1)
	b.awaitWhy(id, inspect.StateRunning)
	waits := b.enqueue(job{Res: queue.AllOf(limited, b.resource), N: 3})
	if e := b.awaitWhy(waits, inspect.StateWaiting); e.Resource != b.resource || e.Lock.Task == nil || e.Lock.Task.ID != id {
		t.Errorf("want it wait for %s, have %+v", b.resource, e)
	}
	b.pause() // so that it does not get the lock
	for _, resource := range []string{b.resource, first} {
		b.do("del", "lock:"+resource)
		expect.Eventually(t, "the task has lost "+resource, func() bool {
			e := b.why(id)
			return e.State == inspect.StateLost && (e.Resource == b.resource || e.Resource == first)
		})
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
		expect.That(t, e.Lock != nil && strings.Contains(e.Lock.Holder, ids[0]) && (e.Lock.Task != nil) == (id == ids[0]) && strings.HasPrefix(e.Verdict.Wrong, "No"), "want it at work under the lock of the first, have %+v, lock %+v", e, e.Lock)
	}
}
