package proc

import (
	"sync"
	"testing"
)

// A Shared is a server that tests of one process use together. The zero value is
// ready to use.
type Shared[S interface{ StopAfter(tb testing.TB) }] struct {
	mu     sync.Mutex
	server S
	users  int // tests that use it now
}

// Use returns the server. It is started for the first of the tests that use it at
// the same time, and stopped after the last.
func (s *Shared[S]) Use(tb testing.TB, start func() S) S {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users == 0 {
		s.server = start()
	}
	s.users++
	tb.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.users--; s.users == 0 {
			s.server.StopAfter(tb)
		}
	})
	return s.server
}
