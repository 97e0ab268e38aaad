package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/etcdtest"
	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/internal/verify"
)

// Every command of the README is run as it stands there, but for what a test
// must give: where Redis and the ledger are, and an end to what serves for ever.
func TestReadmeCommands(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(readme), -1) {
		for line := range strings.Lines(block[1]) {
			line = strings.TrimSpace(line)
			switch {
			case strings.HasPrefix(line, "cd lock/etcdlock && go run ./example"):
				if !verify.All() { // it compiles etcd's client
					continue
				}
				s.shell(t, root, line+" -etcd "+etcdtest.Start(t).Addr)
			case line == "make test":
				s.shell(t, root, "make -n test verify") // this test is part of them
			case strings.HasPrefix(line, "go run ./cmd/worker --demo") && !strings.Contains(line, "--once"):
				s.serve(t, root, line, "still serving").interrupt(t)
			case strings.HasPrefix(line, "go run ./cmd/worker") && !strings.Contains(line, "--once"):
				w := s.serve(t, root, line, "worker started")
				defer w.interrupt(t)
			default:
				s.shell(t, root, line)
			}
			ran++
		}
	}
	if ran < 8 {
		t.Errorf("commands in the README: want 8 or more, have %d", ran)
	}
	if info := s.awaitEmpty(t, 2*time.Minute); info.FailedTotal != 0 {
		t.Errorf("failed: want none, have %d", info.FailedTotal)
	}
}

// built names the built program instead of "go run", which passes no signals on.
func (s *site) built(line string) string {
	return strings.ReplaceAll(line, "go run ./cmd/", s.bin+"/")
}

func (s *site) shell(t *testing.T, dir, line string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", s.built(line))
	cmd.Dir, cmd.Env = dir, s.env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", line, err, tail(string(out), 2000))
	}
}

// A served program runs until it is interrupted.
type served struct {
	cmd  *exec.Cmd
	line string
	out  *lockedBuffer
}

// serve starts a program and waits until it says that it is up.
func (s *site) serve(t *testing.T, dir, line, up string) *served {
	t.Helper()
	p := &served{cmd: exec.CommandContext(t.Context(), "sh", "-c", "exec "+s.built(line)), line: line, out: &lockedBuffer{}}
	p.cmd.Dir, p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = dir, s.env, p.out, p.out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // in case it was not interrupted
		if t.Failed() {
			t.Logf("%s:\n%s", line, tail(p.out.String(), 4000))
		}
	})
	poll.Eventually(t, line+" says "+up, func() bool { return strings.Contains(p.out.String(), up) })
	return p
}

func (p *served) interrupt(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Error(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("%s: after Ctrl-C: %v\n%s", p.line, err, tail(p.out.String(), 2000))
	}
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
