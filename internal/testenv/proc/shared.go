package proc

import (
	"sync"
	"testing"
)

// A stopper is a [Server], or a kind of server that embeds one.
type stopper interface{ StopAfter(tb testing.TB) }

// ForTest returns the server that a start returned, and stops it at the test's cleanup. An
// error of the start ends the test as by [Need].
func ForTest[S stopper](tb testing.TB, server S, err error) S {
	tb.Helper()
	Need(tb, err)
	tb.Cleanup(func() { server.StopAfter(tb) })
	return server
}

// A Shared is a server that tests of one process use together. The zero value is ready to use.
type Shared[S stopper] struct {
	mu     sync.Mutex
	server S
	users  int // tests that use it now
}

// Use returns the server. The first of the tests that use it at the same time starts the
// server, and the last one stops it. An error of the start ends the test as by [Need].
func (s *Shared[S]) Use(tb testing.TB, start func() (S, error)) S {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users == 0 {
		server, err := start()
		Need(tb, err)
		s.server = server
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
