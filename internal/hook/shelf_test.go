package hook_test

import (
	"context"
	"slices"
	"sync"

	"github.com/sidingq/siding/internal/fetch"
	"github.com/sidingq/siding/internal/hook"
)

// A shelf is the fetcher of a server in tests that decide themselves what is prefetched. It keeps
// prefetched tasks until a dequeue claims them, or the test drops them.
type shelf struct {
	mu    sync.Mutex
	takes bool // a finish takes the next task
	tasks []fetch.Task
}

func (s *shelf) Dequeue(_ context.Context, queue string, scan fetch.Scan) (fetch.Task, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.tasks) == 0 {
		return scan(queue)
	}
	t := s.tasks[0]
	s.tasks = s.tasks[1:]
	return t, nil
}

func (s *shelf) Wants(queue string, _ bool) (w fetch.Wanted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.takes {
		w.Queues = []string{queue}
	}
	return w
}

func (s *shelf) Deliver(t fetch.Task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tasks = append(s.tasks, t)
}

func (s *shelf) take(takes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takes = takes
}

// prefetched returns the attempts that no dequeue has claimed so far, the oldest first.
func (s *shelf) prefetched() (unclaimed []*hook.Attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tasks {
		unclaimed = append(unclaimed, t.Attempt.(*hook.Attempt)) //nolint:errcheck,forcetypeassert // it is
	}
	return unclaimed
}

// drop has no dequeue claim a.
func (s *shelf) drop(a *hook.Attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tasks = slices.DeleteFunc(s.tasks, func(t fetch.Task) bool { return t.Attempt == a })
}
