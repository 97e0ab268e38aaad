package verify

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

// A Mutant is a mistake in a package: an edit of a text that its file has once.
type Mutant = struct {
	Name     string
	File     string // relative to the package under test; may be of another one
	Old, New string
	Found    []string // the tests, each of which finds the mistake alone
}

// Mutants shows that tests find the mistakes for which they exist. Each mistake is made in a copy of the
// package under test. All tests named for it must find it, and must pass without it. The caller's test must not be parallel: builds
// would slow down tests that race with a clock. Without SIDING_VERIFY, Mutants only looks whether the
// sources are those that the mistakes change.
func Mutants(t *testing.T, mistakes []Mutant) {
	t.Helper()
	var all []string
	for _, m := range mistakes {
		all = append(all, m.Found...)
		sourceOf(t, m)
	}
	Long(t)
	wantEach(t, "PASS", os.Args[0], all)
	const builders = 2
	building := make(chan struct{}, builders) // tests mostly wait, and need no such limit
	for _, m := range mistakes {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			building <- struct{}{}
			program := func() string {
				defer func() { <-building }()
				return build(t, m)
			}()
			for _, name := range m.Found { // alone, as one that panics would end the others
				wantEach(t, "FAIL", program, []string{name})
			}
		})
	}
}

// sourceOf returns the file that m changes.
func sourceOf(t *testing.T, m Mutant) (path, source string) {
	t.Helper()
	path, err := filepath.Abs(m.File)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), m.Old); n != 1 {
		t.Fatalf("%s: want this once in %s, have it %d times: %s", m.Name, m.File, n, m.Old)
	}
	return path, string(text)
}

// build builds the tests of the package with the mistake. The race detector is used if this test
// uses it, as the build cache then has what it needs.
func build(t *testing.T, m Mutant) (program string) {
	t.Helper()
	path, source := sourceOf(t, m)
	dir := t.TempDir()
	program = filepath.Join(dir, "mutant.test")
	write := func(name string, text []byte) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	edited := write(filepath.Base(path), []byte(strings.Replace(source, m.Old, m.New, 1)))
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{path: edited}})
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"test", "-c", "-overlay", write("overlay.json", replace), "-o", program, "-vet=off", "-gcflags=-N -l"} // quickly
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "-race" && s.Value == "true" {
				args = append(args, "-race")
			}
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", append(args, ".")...) //nolint:gosec // builds what the test says
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return program
}

// wantEach runs the named tests of a test program and wants each to end that way.
func wantEach(t *testing.T, end, program string, names []string) {
	t.Helper()
	patterns := make([]string, len(names))
	for i, name := range names {
		patterns[i] = Pattern(name)
	}
	const longest = 2 * time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "-test.v", "-test.run="+strings.Join(patterns, "|")) //nolint:gosec // that is what was built
	output, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		t.Errorf("want an end of the tests within %v: %v", longest, err)
	}
	for _, name := range names {
		if !strings.Contains(string(output), "--- "+end+": "+name+" (") {
			t.Fatalf("want %s to %s, have:\n%s", name, end, output)
		}
	}
}
