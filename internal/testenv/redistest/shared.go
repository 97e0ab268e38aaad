package redistest

import (
	"testing"

	"github.com/sidingq/siding/internal/testenv/proc"
)

// shared is state of a package, against the habit: the test process is what the
// server is shared in.
var shared proc.Shared[*Server]

// Shared returns a server that all tests of this process use together: each
// must use keys of its own (a queue or resource named after the test), and none
// may kill, pause, flush or configure it. It is started for the first and ended
// after the last of the tests that use it at the same time, so a later one may
// find a new, empty server.
func Shared(tb testing.TB) *Server {
	tb.Helper()
	return shared.Use(tb, func() *Server { return start(tb, nil, nil) })
}
