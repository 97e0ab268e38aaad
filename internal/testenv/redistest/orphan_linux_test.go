package redistest_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// orphanEnv makes TestHelperStartsAndHangs the program that is killed.
const orphanEnv = "REDISTEST_HANG"

// TestServersDieWithTheTestProcess kills a test process in the middle of a
// test, which runs no cleanup. Only Linux ends a child with its parent.
func TestServersDieWithTheTestProcess(t *testing.T) {
	t.Parallel()
	redistest.Shared(t) // or skip
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelperStartsAndHangs$", "-test.v")
	cmd.Env = append(os.Environ(), orphanEnv+"="+t.TempDir())
	cmd.Stderr = os.Stderr
	out := expect.Value(cmd.StdoutPipe())(t)
	expect.OK(t, cmd.Start())
	var addr string
	lines := bufio.NewScanner(out)
	for addr == "" && lines.Scan() {
		_, addr, _ = strings.Cut(lines.Text(), "serving at ")
	}
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", addr)
	expect.Need(t, err == nil, "want a server at %q before the kill: %v", addr, err)
	_ = conn.Close()
	expect.OK(t, cmd.Process.Kill())
	_ = cmd.Wait() // killed
	expect.Eventually(t, "nobody to listen", func() bool {
		conn, err := d.DialContext(t.Context(), "tcp", addr)
		if err != nil {
			return true
		}
		_ = conn.Close()
		return false
	})
}

// TestHelperStartsAndHangs is no test but what TestServersDieWithTheTestProcess runs.
func TestHelperStartsAndHangs(t *testing.T) {
	t.Parallel()
	dir := os.Getenv(orphanEnv)
	if dir == "" {
		return
	}
	// The folder is the parent's, so that it is removed although we are killed.
	if err := os.Setenv("TMPDIR", dir); err != nil { //nolint:usetesting // t.Setenv forbids t.Parallel; this process runs nothing else
		t.Fatal(err)
	}
	fmt.Println("serving at " + redistest.Start(t).Addr) //nolint:forbidigo // read by the parent
	<-t.Context().Done()
}
