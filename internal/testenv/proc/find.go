package proc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Look returns the path of the first of names that this machine has. A name is
// looked up in PATH. One that holds a slash is a pattern of [filepath.Glob], whose
// last match in sorted order counts: Debian keeps each PostgreSQL version's programs
// in a folder of their own. The error names debianPackage as what to install.
func Look(debianPackage string, names ...string) (string, error) {
	for _, name := range names {
		if !strings.Contains(name, "/") {
			if path, err := exec.LookPath(name); err == nil {
				return path, nil
			}
			continue
		}
		matches, err := filepath.Glob(name)
		if err == nil && len(matches) > 0 {
			return slices.Max(matches), nil
		}
	}
	return "", fmt.Errorf("%q: not found; install it (on Debian: apt-get install %s)", names, debianPackage)
}

// Find is Look for tests: it skips a test whose program is missing. Where the
// environment variable CI is set it fails the test instead, as nobody would notice
// that it no longer runs.
func Find(tb testing.TB, debianPackage string, names ...string) string {
	tb.Helper()
	path, err := Look(debianPackage, names...)
	switch {
	case err == nil:
	case os.Getenv("CI") != "":
		tb.Fatal(err)
	default:
		tb.Skip(err) //nolint:forbidigo // this is what others call
	}
	return path
}

// FreeAddr returns an address of 127.0.0.1 that was free a moment ago. Its port lies
// below those that Linux (from 32768) and others give to outgoing connections and to
// listeners on port 0, so that a server that is down for a moment finds its port
// free. So does the port of a Redis Cluster node's bus, which is the node's plus
// 10000.
func FreeAddr(ctx context.Context) (string, error) {
	const lowest, count, attempts = 12000, 10000, 100
	for range attempts {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(lowest+rand.IntN(count)))
		var config net.ListenConfig
		l, err := config.Listen(ctx, "tcp", addr)
		if err != nil {
			continue
		}
		return addr, l.Close()
	}
	return "", errors.Join(fmt.Errorf("no free port among %d from %d on, in %d attempts", count, lowest, attempts), ctx.Err())
}
