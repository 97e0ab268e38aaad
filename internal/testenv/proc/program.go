package proc

import (
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// An Output collects the output of a program while others read it. The zero value is empty.
type Output struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write adds p to the output.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p) //nolint:wrapcheck // a Builder never fails
}

// String returns the output so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// A Program is a child process of a test.
type Program struct {
	Cmd            *exec.Cmd
	Stdout, Stderr Output
	Ended          <-chan struct{} // closed when the process has ended
}

// Launch starts cmd, and collects its output. A Stdout or Stderr that cmd has already gets that output
// instead. At the end of the test the process is killed if it still runs. A test that has failed
// then logs the standard error.
func Launch(tb testing.TB, cmd *exec.Cmd) *Program {
	tb.Helper()
	ended := make(chan struct{})
	p := &Program{Cmd: cmd, Ended: ended}
	if cmd.Stdout == nil {
		cmd.Stdout = &p.Stdout
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &p.Stderr
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	go func() {
		defer close(ended)
		_ = cmd.Wait() // Wait returns the status
	}()
	tb.Cleanup(func() {
		_ = cmd.Process.Kill() // an error says that the process has ended
		<-ended
		if tb.Failed() {
			tb.Logf("the end of the standard error of %v, process %d:\n%s", cmd.Args, cmd.Process.Pid, end([]byte(p.Stderr.String())))
		}
	})
	return p
}

// FullPipe returns a pipe that takes no more, and that nobody reads.
func FullPipe(tb testing.TB) *os.File {
	tb.Helper()
	reader, writer, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _, _ = reader.Close(), writer.Close() })
	if err := writer.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		tb.Fatal(err)
	}
	for err == nil {
		_, err = writer.Write(make([]byte, 512)) // which no pipe takes in part
	}
	return writer
}

// Signal sends the process a signal.
func (p *Program) Signal(tb testing.TB, s os.Signal) {
	tb.Helper()
	if err := p.Cmd.Process.Signal(s); err != nil {
		tb.Fatal(err)
	}
}

// Wait returns the exit status. The test fails if the process does not end within the limit.
func (p *Program) Wait(tb testing.TB, limit time.Duration) int {
	tb.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.Ended:
		return p.Cmd.ProcessState.ExitCode()
	case <-timer.C:
		tb.Fatalf("want %v to end within %v", p.Cmd.Args, limit)
		return -1
	}
}
