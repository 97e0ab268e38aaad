// Package testbin finds the programs, such as redis-server, that tests run.
//
// On a developer's machine a test whose program is missing is skipped, so that
// the rest can be run. In continuous integration (the environment variable CI
// is set) a test that silently stopped running would look like one that
// passes, so there it fails.
package testbin

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// Find returns the path of the first of names that this machine has. A name
// is looked up in PATH; one that holds a slash is a pattern as
// [filepath.Glob] reads it, of whose matches the last in sorted order counts
// (Debian keeps each PostgreSQL version's programs in a folder of their own).
//
// If there is none, the test is skipped, or fails where CI is set, with a
// message that names debianPackage as what to install.
func Find(tb testing.TB, debianPackage string, names ...string) string {
	tb.Helper()
	for _, name := range names {
		if path, ok := find(name); ok {
			return path
		}
	}
	const missing = "%v: not found; install it (on Debian: apt-get install %s)"
	if os.Getenv("CI") != "" {
		tb.Fatalf(missing, names, debianPackage)
	}
	tb.Skipf(missing, names, debianPackage)
	return ""
}

func find(name string) (string, bool) {
	if !slices.Contains([]byte(name), '/') {
		path, err := exec.LookPath(name)
		return path, err == nil
	}
	matches, err := filepath.Glob(name)
	if err != nil || len(matches) == 0 {
		return "", false
	}
	return slices.Max(matches), true
}
