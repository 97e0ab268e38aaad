package lockpage_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sidingq/siding/inspect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A source has locks in memory.
type source struct {
	mu    sync.Mutex
	err   error
	locks map[string]inspect.Lock
	tasks map[string]inspect.Explanation
	asked map[string]int

	lines   []inspect.HeldLine
	leftOut int  // of these
	paused  bool // the one queue
}

func newSource(locks ...inspect.Lock) *source {
	s := &source{locks: map[string]inspect.Lock{}, tasks: map[string]inspect.Explanation{}, asked: map[string]int{}}
	for _, l := range locks {
		s.put(l)
	}
	return s
}

func (s *source) put(l inspect.Lock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.locks[l.Resource] = l
}

func (s *source) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// ask counts a question, and locks the source until the returned function is called.
func (s *source) ask(what string) (end func()) {
	s.mu.Lock()
	s.asked[what]++
	return s.mu.Unlock
}

func (s *source) count(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[what]
}

func (s *source) Held(context.Context) (inspect.List, error) {
	defer s.ask("held")()
	var list inspect.List
	for _, l := range s.locks {
		if l.State != inspect.Free || l.Waiting > 0 {
			list.Locks = append(list.Locks, l)
		}
	}
	return list, s.err
}

func (s *source) Show(_ context.Context, resource string, from, count int) (inspect.Lock, []inspect.Waiter, error) {
	defer s.ask("show")()
	l, ok := s.locks[resource]
	if !ok {
		return inspect.Lock{Resource: resource, State: inspect.Free}, nil, s.err
	}
	var waiters []inspect.Waiter
	for i := from; i <= l.Waiting && len(waiters) < count; i++ {
		task := &inspect.Task{Queue: "default", ID: fmt.Sprintf("audit-%d", i), Kind: "order:audit"}
		waited := l.OldestWait / inspect.Duration(l.Waiting) * inspect.Duration(l.Waiting-i+1)
		waiters = append(waiters, inspect.Waiter{
			Position: i, Task: task, Name: fmt.Sprintf("siding-task:default:audit-%d", i),
			Since: time.Now().Add(-time.Duration(waited)), Waited: waited,
		})
	}
	return l, waiters, s.err
}

func (s *source) Why(_ context.Context, queue, id string) (inspect.Explanation, error) {
	defer s.ask("why")()
	e, ok := s.tasks[id]
	if s.err == nil && (!ok || queue != "" && queue != e.Task.Queue) {
		return e, fmt.Errorf("%s: %w", id, inspect.ErrUnknownTask)
	}
	return e, s.err
}

func (s *source) Queues(context.Context) ([]inspect.Queue, error) {
	defer s.ask("queues")()
	waiting := 0
	for _, l := range s.locks {
		waiting += l.Waiting
	}
	return []inspect.Queue{{Name: "default", Waiting: waiting, Paused: s.paused}}, s.err
}

func (s *source) HeldLines(context.Context) (lines []inspect.HeldLine, leftOut int, _ error) {
	defer s.ask("lines")()
	return s.lines, s.leftOut, s.err
}

var (
	errAway    = errors.New("dial tcp 10.1.2.3:6379: connection refused")
	errRefused = errors.New("not now")
)
