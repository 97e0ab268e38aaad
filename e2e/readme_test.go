package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/verify"
)

// The test runs every command of the README and the guides. The test adds only the addresses of
// Redis and the ledger, and an end to programs that serve for ever.
func TestReadmeCommands(t *testing.T) {
	t.Parallel()
	s := newTestbed(t)
	root := expect.Value(filepath.Abs(".."))(t)
	ran, modules := 0, 0
	for _, line := range commands(t, root) {
		switch {
		case strings.Contains(line, "--compare"):
			if !verify.All() { // it takes a minute
				continue
			}
			s.shell(t, root, line+" --work 2ms") // so that Siding is done in time on any machine
		case strings.HasPrefix(line, "go mod edit"):
			modules++
			s.useModule(t, root, line, modules == 1 || verify.All())
		case strings.HasPrefix(line, "go run ./cmd/worker --demo") && !strings.Contains(line, "--once"):
			s.serve(t, root, line, "still serving").end(t, os.Interrupt)
		case strings.HasPrefix(line, "go run ./cmd/worker") && !strings.Contains(line, "--once"):
			w := s.serve(t, root, line, "worker started")
			defer w.end(t, os.Interrupt)
		default:
			s.shell(t, root, line)
		}
		ran++
	}
	expect.That(t, ran >= 8, "commands in the README and the guides: want 8 or more, have %d", ran)
	if info := s.awaitEmpty(t, 2*time.Minute); info.FailedTotal != 0 {
		t.Errorf("failed: want none, have %d", info.FailedTotal)
	}
}

// commands returns the lines of the README's blocks of shell commands, then those of the guides.
func commands(t *testing.T, root string) []string {
	t.Helper()
	guides, err := filepath.Glob(filepath.Join(root, "docs", "guides", "*.md"))
	expect.Need(t, err == nil && guides != nil, "want guides, have none, %v", err)
	var lines []string
	for _, page := range append([]string{filepath.Join(root, "README.md")}, guides...) {
		text := expect.Value(os.ReadFile(page))(t)
		for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
			for line := range strings.Lines(block[1]) {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
	}
	return lines
}

// built names the built program instead of "go run", which passes no signals on.
func (s *testbed) built(line string) string {
	return strings.ReplaceAll(line, "go run ./cmd/", s.bin+"/")
}

// useModule edits a new module by the line. Its requirements must be found in the clone at root. With run
// it also runs a program in the module that imports the clone.
func (s *testbed) useModule(t *testing.T, root, line string, run bool) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":  "module example.com/service\n\ngo 1.26\n",
		"main.go": "package main\n\nimport \"github.com/sidingq/siding/lock\"\n\nfunc main() { _ = lock.Config{}.Validate() }\n",
	} {
		expect.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	line = strings.ReplaceAll(line, "../siding", root) + " && go mod tidy"
	if run {
		line += " && go run ."
	}
	s.shell(t, dir, line)
}

func (s *testbed) shell(t *testing.T, dir, line string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", s.built(line))
	cmd.Dir, cmd.Env = dir, s.env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", line, err, tail(string(out), 2000))
	}
}

// serve starts a program and waits until it says that it is up.
func (s *testbed) serve(t *testing.T, dir, line, up string) *process {
	t.Helper()
	p := s.start(t, dir, "sh", "-c", "exec "+s.built(line))
	expect.Eventually(t, line+" says "+up, func() bool { return strings.Contains(p.Stdout.String()+p.Stderr.String(), up) })
	return p
}
