package redistest

import (
	"os"
	"sync"
	"testing"
)

// shared is the server of this process for tests that do not mind each other,
// with the number of tests that use it now. This is state of a package, against
// the habit: the test process is what the server is shared in.
var shared struct {
	sync.Mutex
	*Server
	users int
}

// Shared returns a server that all tests of this process use together: each
// must use keys of its own (a queue or resource named after the test), and none
// may kill, pause, flush or configure it. It is started for the first and ended
// after the last of the tests that use it at the same time, so a later one may
// find a new, empty server.
func Shared(tb testing.TB) *Server {
	tb.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.users == 0 {
		program := find(tb)
		// A tb.TempDir would go with the first of the tests.
		dir, err := os.MkdirTemp("", "redistest-") //nolint:usetesting // see above
		if err != nil {
			tb.Fatal(err)
		}
		shared.Server = startIn(tb, program, dir, nil, nil)
	}
	shared.users++
	tb.Cleanup(func() { leave(tb) })
	return shared.Server
}

// leave is the cleanup of one user of the shared server.
func leave(tb testing.TB) {
	tb.Helper()
	shared.Lock()
	defer shared.Unlock()
	shared.users--
	if shared.users > 0 {
		return
	}
	shared.stop(tb)
	if err := os.RemoveAll(shared.Dir); err != nil {
		tb.Errorf("remove the folder of the shared server: %v", err)
	}
}
