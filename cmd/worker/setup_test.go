package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/proc"
)

// The exit statuses of the program, as its help tells them.
const (
	exitOK    = 0
	exitFault = 1
	exitUsage = 2
)

// asProgram makes the test binary run as the program itself.
const asProgram = "SIDING_TEST_AS_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	logging.Disable()
	goleak.VerifyTestMain(m)
}

// An inProcess is a run of the program inside the test.
type inProcess struct {
	stdout, stderr proc.Output
	status         chan int
	stop           context.CancelFunc
}

// start runs the program with the arguments until it ends or is stopped. The configuration is that
// of args alone.
func start(t *testing.T, args ...string) *inProcess {
	t.Helper()
	return startWith(t, nil, args...)
}

// startWith does the same with variables of the environment (name=value).
func startWith(t *testing.T, environ []string, args ...string) *inProcess {
	t.Helper()
	return startApp(t, &app{}, environ, args...)
}

// startApp does the same with an app of the test's.
func startApp(t *testing.T, a *app, environ []string, args ...string) *inProcess {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	w := &inProcess{status: make(chan int, 1), stop: stop}
	a.stdout, a.stderr = &w.stdout, &w.stderr
	go func() { w.status <- a.program(environ).Run(ctx, args, &w.stdout, &w.stderr) }()
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			t.Logf("standard error of worker %v:\n%s", args, w.stderr.String())
		}
	})
	return w
}

// wait returns the exit status.
func (w *inProcess) wait(t *testing.T, limit time.Duration) int {
	t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case status := <-w.status:
		return status
	case <-timer.C:
		t.Fatalf("want the program to end within %v", limit)
		return -1
	}
}

// end stops the program, and wants it to end without a fault.
func (w *inProcess) end(t *testing.T, limit time.Duration) {
	t.Helper()
	w.stop()
	expect.Equal(t, "exit status", w.wait(t, limit), exitOK)
}

// launch starts the program with the arguments as a process.
func launch(t *testing.T, args ...string) *proc.Program {
	t.Helper()
	return proc.Launch(t, program(t, args...))
}

// program returns the command that runs the program as a process.
func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...) //nolint:noctx // killed at cleanup, after the servers it talks to
	cmd.Dir = t.TempDir()                    // without a config.yaml
	cmd.Env = append(os.Environ(), asProgram+"=1", "TMPDIR="+cmd.Dir)
	return cmd
}

// address waits for the start of a worker and returns where it serves.
func address(t *testing.T, stderr *proc.Output) string {
	t.Helper()
	started := regexp.MustCompile(`msg="worker started".*http=http://([^/\s]+)`)
	var have []string
	expect.Eventually(t, "the worker started", func() bool {
		have = started.FindStringSubmatch(stderr.String())
		return have != nil
	})
	return have[1]
}

// settings are arguments that keep a worker's files and ports to itself.
func settings(t *testing.T, more ...string) []string {
	t.Helper()
	return append([]string{"--http", "127.0.0.1:0", "--ledger", filepath.Join(t.TempDir(), "ledger.db")}, more...)
}

// occupy listens on a free port until the end of the test.
func occupy(t *testing.T) string {
	t.Helper()
	listener := expect.Value((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = listener.Close() })
	return listener.Addr().String()
}

// vacant returns the address of a port on which nobody listens.
func vacant(t *testing.T) string {
	t.Helper()
	addr := expect.Value(proc.FreeAddr(t.Context()))(t)
	return addr
}

func port(t *testing.T, address string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	expect.OK(t, err)
	return port
}

// wantTexts checks that each text is in have.
func wantTexts(t *testing.T, have string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		expect.That(t, strings.Contains(have, text), "want %q in %s", text, fmt.Sprintf("%.2000s", have))
	}
}
