package e2e

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/proc"
)

// A demo whose output nobody reads says so, and leaves no temporary folder behind.
func TestDemoWithABrokenPipe(t *testing.T) {
	t.Parallel()
	bin := expect.Value(binaries())(t)
	addr := expect.Value(proc.FreeAddr(t.Context()))(t)
	_, port, err := net.SplitHostPort(addr)
	expect.OK(t, err)
	reader, writer, err := os.Pipe()
	expect.OK(t, err)
	_ = reader.Close() // nobody reads
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "worker"), "--demo", "--once", "--work", "1ms", "--http", "off", "--embedded-port", port)
	cmd.Dir = t.TempDir() // without a config.yaml
	cmd.Env, cmd.Stdout = append(environ(), "TMPDIR="+cmd.Dir), writer
	p := proc.Launch(t, cmd)
	_ = writer.Close() // the process has its own
	if have := p.Wait(t, 2*time.Minute); have != 1 {
		t.Errorf("want exit status 1, have %d", have)
	}
	if want := "worker: standard output: write /dev/stdout: broken pipe"; !strings.Contains(p.Stderr.String(), want) {
		t.Errorf("want %q, have:\n%s", want, p.Stderr.String())
	}
	found, err := filepath.Glob(filepath.Join(cmd.Dir, "siding-demo-*"))
	if err != nil || len(found) != 0 {
		t.Errorf("want no folder left, have %q, %v", found, err)
	}
}
