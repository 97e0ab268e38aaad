package mutants

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/verify"
)

// A Mutant is a package with one mistake: an edit that replaces a text that is in the
// file once.
type Mutant = struct {
	Name     string
	File     string // relative to the package, which needs not be its own
	Old, New string
	Found    []string // the tests that find it, each by itself
}

// Run makes each mistake in a copy of the package under test, and wants it found by all
// the tests that are named for it. Without a mistake they have to succeed. At the end it
// logs which mistakes make test finds as well. The caller's test is not parallel: builds
// would slow down the tests beside it, of which some race with a clock.
func Run(t *testing.T, mistakes []Mutant) {
	t.Helper()
	verify.Long(t)
	gotool, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, m := range mistakes {
		all = append(all, m.Found...)
	}
	output := runTests(t, os.Args[0], all, environInVerify)
	for _, test := range all {
		if !strings.Contains(output, "--- PASS: "+test+" (") {
			t.Fatalf("want %s to succeed without a mistake, have:\n%s", test, output)
		}
	}
	var inTest tally
	t.Cleanup(func() {
		t.Logf("of %d mistakes make test finds %d, and not: %q", len(mistakes), inTest.found, inTest.missed)
	})
	const builders = 2
	slots := make(chan struct{}, builders) // the tests mostly wait, so that they need none
	for _, m := range mistakes {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			slots <- struct{}{}
			program := func() string {
				defer func() { <-slots }()
				return build(t, gotool, m)
			}()
			output := runTests(t, program, m.Found, environInVerify)
			for _, test := range m.Found {
				if !strings.Contains(output, "--- FAIL: "+test+" (") {
					t.Errorf("want the mistake found by %s, have:\n%s", test, output)
				}
			}
			inTest.count(m.Name, strings.Contains(runTests(t, program, m.Found, environInTest), "--- FAIL: "))
		})
	}
}

// What tests have in their environment in make verify, and in make test.
const (
	environInVerify = "SIDING_VERIFY=1"
	environInTest   = "SIDING_VERIFY="
)

// A tally counts the mistakes that were found, and has those that were not.
type tally struct {
	mu     sync.Mutex
	found  int
	missed []string
}

func (t *tally) count(name string, found bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if found {
		t.found++
	} else {
		t.missed = append(t.missed, name)
	}
}

// build builds the tests of the package with the mistake, and with the race detector if
// that runs now, so that what it needs is built already.
func build(t *testing.T, gotool string, m Mutant) (program string) {
	t.Helper()
	source, err := os.ReadFile(m.File)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), m.Old); n != 1 {
		t.Fatalf("want this once in %s, have it %d times: %s", m.File, n, m.Old)
	}
	path, err := filepath.Abs(m.File)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	edited, overlay, program := filepath.Join(dir, filepath.Base(m.File)), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "mutant.test")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{path: edited}})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{
		edited:  []byte(strings.Replace(string(source), m.Old, m.New, 1)),
		overlay: replace,
	} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"test", "-c", "-overlay", overlay, "-o", program, "-vet=off", "-gcflags=-N -l"} // quickly
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "-race" && s.Value == "true" {
				args = append(args, "-race")
			}
		}
	}
	cmd := exec.CommandContext(t.Context(), gotool, append(args, ".")...) //nolint:gosec // builds what the test says
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return program
}

// runTests runs the named tests of a test program, with env in its environment, and
// returns what it said.
func runTests(t *testing.T, program string, names []string, env string) string {
	t.Helper()
	patterns := make([]string, len(names))
	for i, name := range names {
		patterns[i] = verify.Pattern(name)
	}
	const longest = 2 * time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "-test.v", "-test.run="+strings.Join(patterns, "|")) //nolint:gosec // that is what was built
	cmd.Env = append(os.Environ(), env)
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		t.Errorf("want an end of the tests within %v: %v", longest, err)
	}
	return string(out)
}
