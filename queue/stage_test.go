package queue_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// A stage is a handler under the test's control. The stage fails the test when two jobs of one
// resource run at the same time. It also does so when a later run does not have a higher fencing
// token.
type stage struct {
	t *testing.T

	mu     sync.Mutex
	runs   []int                // which jobs have begun, in order
	inside map[string][]running // by resource
	fences map[string]int64     // the highest token seen, by resource
	gates  map[int]*gate        // by job
	acts   map[int]func() error // by job
	unsafe bool                 // jobs may meet: the test makes a zombie whose lock is gone
	// unfenced says that the locks have no fencing tokens.
	unfenced bool
	// permits says that the locks have several holders, whose handlers begin in any order.
	permits bool
}

// A running job has the resource until it returns, or its lease is lost.
type running struct {
	n    int
	lost func() bool
}

// A gate holds a job in its handler.
type gate struct {
	entered chan struct{} // closed when the job has begun
	ended   chan struct{} // closed when its context has ended
	opened  chan struct{} // closed to let it go
}

func (g *gate) open() { close(g.opened) }

func newStage(t *testing.T) *stage {
	t.Helper()
	return &stage{
		t:      t,
		inside: make(map[string][]running),
		fences: make(map[string]int64),
		gates:  make(map[int]*gate),
		acts:   make(map[int]func() error),
	}
}

// hold makes the next run of job n wait in its handler, whatever becomes of its context. The run
// waits until the gate is opened or the test is over.
func (s *stage) hold(n int) *gate {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := &gate{entered: make(chan struct{}), ended: make(chan struct{}), opened: make(chan struct{})}
	s.gates[n] = g
	return g
}

// act makes each run of job n do f, after its gate.
func (s *stage) act(n int, f func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acts[n] = f
}

// failOnce makes the first run of job n fail.
func (s *stage) failOnce(n int, failure error) {
	s.act(n, func() error {
		err := failure
		failure = nil
		return err
	})
}

// run is the handler.
func (s *stage) run(ctx context.Context, j job) error {
	g, act := s.enter(ctx, j)
	defer s.leave(j)
	if g != nil {
		context.AfterFunc(ctx, func() { close(g.ended) })
		close(g.entered)
		select {
		case <-g.opened:
		case <-s.t.Context().Done():
		}
	}
	if act != nil {
		return act()
	}
	return nil
}

func (s *stage) enter(ctx context.Context, j job) (*gate, func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs = append(s.runs, j.N)
	for _, other := range s.inside[j.Res] {
		if !s.unsafe && !s.permits && !other.lost() {
			s.t.Errorf("%s: jobs %d and %d run at the same time", j.Res, other.n, j.N)
		}
	}
	s.inside[j.Res] = append(s.inside[j.Res], running{j.N, func() bool { return errors.Is(context.Cause(ctx), lock.ErrLost) }})
	if fence := lock.Fence(ctx, j.Res); fence == 0 && (j.Res == "" || s.unfenced) {
		// a task that is not guarded, or one that is by a lock without
	} else if fence <= s.fences[j.Res] && !s.permits {
		s.t.Errorf("%s: job %d: want a fence above %d, have %d", j.Res, j.N, s.fences[j.Res], fence)
	} else {
		s.fences[j.Res] = fence
	}
	g := s.gates[j.N]
	delete(s.gates, j.N)
	return g, s.acts[j.N]
}

func (s *stage) leave(j job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.IndexFunc(s.inside[j.Res], func(r running) bool { return r.n == j.N })
	s.inside[j.Res] = slices.Delete(s.inside[j.Res], at, at+1)
}

// order returns which jobs have begun, in order.
func (s *stage) order() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.runs)
}

// awaitRuns waits until so many runs have begun, and returns their order.
func (s *stage) awaitRuns(n int) []int {
	s.t.Helper()
	expect.Eventually(s.t, fmt.Sprintf("%d runs", n), func() bool { return len(s.order()) >= n })
	return s.order()
}

func (s *stage) wantOrder(want ...int) {
	s.t.Helper()
	if have := s.awaitRuns(len(want)); !slices.Equal(have, want) {
		s.t.Errorf("order: want %v, have %v", want, have)
	}
}

// A journal keeps what a server's observer is told.
type journal struct {
	mu     sync.Mutex
	events []queue.Event
}

func (j *journal) observe(e queue.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events = append(j.events, e)
}

// of returns the events of a kind, of one task unless id is "".
func (j *journal) of(kind queue.EventKind, id string) []queue.Event {
	j.mu.Lock()
	defer j.mu.Unlock()
	var found []queue.Event
	for _, e := range j.events {
		if e.Kind == kind && (id == "" || e.TaskID == id) {
			found = append(found, e)
		}
	}
	return found
}

// awaitBalance waits until each lock that was acquired has been released or lost, under its own
// fence and once, and no other.
func (b *bundle) awaitBalance() {
	b.Helper()
	type held struct {
		id    string
		fence int64
	}
	open := make(map[held]int)
	err := expect.Until(b.Context(), func() error {
		clear(open)
		for _, e := range b.of(queue.EventAcquired, "") {
			open[held{e.TaskID, e.Fence}]++
		}
		for _, e := range append(b.of(queue.EventReleased, ""), b.of(queue.EventLost, "")...) {
			open[held{e.TaskID, e.Fence}]--
		}
		maps.DeleteFunc(open, func(_ held, n int) bool { return n == 0 })
		if len(open) > 0 {
			return fmt.Errorf("acquired more often than released: %v", open)
		}
		return nil
	})
	expect.OK(b, err)
}

// await waits for the n-th event of a kind about a task.
func (b *bundle) await(kind queue.EventKind, id string, n int) queue.Event {
	b.Helper()
	expect.Eventually(b, fmt.Sprintf("event %d of kind %d for task %s", n, kind, id), func() bool { return len(b.of(kind, id)) >= n })
	return b.of(kind, id)[n-1]
}

// wantEvents waits for n events of a kind about a task, and wants no more.
func (b *bundle) wantEvents(kind queue.EventKind, id string, n int) {
	b.Helper()
	b.await(kind, id, n)
	have := b.of(kind, id)
	expect.That(b, len(have) == n, "want %d events of kind %d for task %s, have %+v", n, kind, id, have)
}
