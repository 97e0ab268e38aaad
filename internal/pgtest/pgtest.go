// Package pgtest starts real PostgreSQL servers for tests.
package pgtest

import (
	"errors"
	"os"
	"sync"
	"testing"

	"github.com/sidingq/siding/internal/pgproc"
)

// shared is the server of this test process, with the number of tests that use
// it now. This is state of a package, against the habit: the test process is
// what the server is shared in.
var shared struct {
	sync.Mutex
	*pgproc.Server
	users int
}

// DSN creates an empty database for tb and returns its URL, to be opened with
// pgx. It starts a server for the first of the tests that use one at the same
// time, and ends it after the last. It skips the test where PostgreSQL is not
// installed, and fails it there if CI is set.
func DSN(tb testing.TB) string {
	tb.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.users == 0 {
		var err error
		shared.Server, err = pgproc.Start(tb.Context())
		if errors.Is(err, pgproc.ErrMissing) && os.Getenv("CI") == "" {
			tb.Skipf("pgtest: %v", err)
		}
		if err != nil {
			tb.Fatalf("pgtest: %v", err)
		}
	}
	shared.users++
	tb.Cleanup(func() {
		shared.Lock()
		defer shared.Unlock()
		if shared.users--; shared.users == 0 {
			shared.Stop()
		}
	})
	dsn, err := shared.CreateDatabase(tb.Context())
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	return dsn
}
