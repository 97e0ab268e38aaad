package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sidingq/siding/internal/config"
	"github.com/sidingq/siding/internal/testenv/expect"
)

// root is the repository, seen from here.
var root = filepath.Join("..", "..")

// read returns a file of the repository.
func read(t *testing.T, name ...string) []byte {
	t.Helper()
	return expect.Value(os.ReadFile(filepath.Join(append([]string{root}, name...)...)))(t)
}

// outside returns the environment without the settings of the person who runs the tests, and then more.
// Flags of the go command may also come from the file that go env -w writes, so there is a value for them.
func outside(more ...string) []string {
	own := func(v string) bool { return strings.HasPrefix(v, "SIDING_") }
	return append(append(slices.DeleteFunc(os.Environ(), own), "GOFLAGS=-buildvcs=auto"), more...)
}

// run runs a program, which must succeed.
func run(t *testing.T, dir string, env []string, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir, cmd.Env = dir, env
	out, err := cmd.CombinedOutput()
	expect.Need(t, err == nil, "%v: %v\n%s", cmd.Args, err, out)
	return string(out)
}

// load reads settings of an environment alone.
func load(t *testing.T, environ []string) config.Config {
	t.Helper()
	settings := expect.Value(config.Sources{Environ: environ}.Load())(t)
	return settings
}
