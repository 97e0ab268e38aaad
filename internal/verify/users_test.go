package verify_test

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/sidingq/siding/internal/testenv/expect"
)

// TestWhatUsersFetch keeps small what a program takes in that imports queue and lock. The go command builds
// and downloads the packages that they import. go mod tidy also fetches what the tests of each of these
// packages import, so a driver for SQL in one test of lock costs each user 40 MB.
func TestWhatUsersFetch(t *testing.T) {
	t.Parallel()
	built := packages(t, "-deps", "./queue", "./lock")
	want := []string{
		"github.com/cespare/xxhash/v2", "github.com/google/uuid", "github.com/hibiken/asynq", "github.com/redis/go-redis/v9",
		"github.com/robfig/cron/v3", "github.com/spf13/cast", "go.uber.org/atomic", "golang.org/x/sys", "golang.org/x/time",
		"google.golang.org/protobuf",
	}
	if have := modules(built); !slices.Equal(have, want) {
		t.Errorf("modules that are built: want %q, have %q", want, have)
	}

	tests := make(map[string]bool) // packages that tests of Siding's packages import
	for _, pkg := range built {
		if pkg.ours() {
			for _, name := range slices.Concat(pkg.TestImports, pkg.XTestImports) {
				tests[name] = true
			}
		}
	}
	delete(tests, "C")
	names := slices.Sorted(maps.Keys(tests))
	for _, module := range modules(packages(t, append([]string{"-deps"}, names...)...)) {
		for _, heavy := range []string{"cobra", "pflag", "yaml", "sqlite", "modernc", "pgx", "mysql", "asynqmon", "gorilla", "prometheus"} {
			expect.That(t, !strings.Contains(module, heavy), "a test of queue, of lock, or of what they import needs %s: each user's go mod tidy would fetch that", module)
		}
	}
}

// A goPackage is what go list tells of a package.
type goPackage struct {
	ImportPath                string
	TestImports, XTestImports []string
	Module                    *struct{ Path string }
}

func (p goPackage) ours() bool { return strings.HasPrefix(p.ImportPath+"/", module) }

// packages asks go list.
func packages(t *testing.T, args ...string) (all []goPackage) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-json=ImportPath,TestImports,XTestImports,Module"}, args...)...)
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			t.Log(string(exit.Stderr))
		}
		t.Fatal(err)
	}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		switch err := decoder.Decode(&p); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatal(err)
		}
		if strings.Contains(strings.Split(p.ImportPath, "/")[0], ".") { // not of the standard library
			all = append(all, p)
		}
	}
}

// modules returns the modules of others that packages come from.
func modules(of []goPackage) []string {
	seen := make(map[string]bool)
	for _, p := range of {
		if p.Module != nil && !strings.HasPrefix(p.Module.Path+"/", module) {
			seen[p.Module.Path] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}
