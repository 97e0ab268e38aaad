//go:build unix

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
)

// A story is what the processes of the example say, and what happens to them.
type story struct {
	out   io.Writer
	lines chan string
	tells sync.WaitGroup // the goroutines that read what processes say
}

// tell adds a line.
func (s *story) tell(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

// await tells what the processes say, until one of them has said text.
func (s *story) await(ctx context.Context, text string) error {
	for {
		select {
		case line := <-s.lines:
			s.tell("%s", line)
			if strings.Contains(line, text) {
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("wait for %q: %w", text, context.Cause(ctx))
		}
	}
}

// A process is a worker that is a child of this process.
type process struct {
	cmd *exec.Cmd
	in  io.Closer
}

// start runs this program again, as a worker. The worker is killed when ctx ends, also a stopped one.
func (s *story) start(ctx context.Context, name string, args ...string) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, append([]string{"-worker", name}, args...)...)
	cmd.Stderr = os.Stderr
	// Should this process die at once, the system ends a stopped worker, too: nobody is left to
	// continue its group.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s.tells.Go(func() {
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			select {
			case s.lines <- scanner.Text():
			case <-ctx.Done(): // nobody listens any more
			}
		}
		_ = cmd.Wait() // it was killed
	})
	return &process{cmd: cmd, in: in}, nil
}

// stop stops the worker where it stands.
func (p *process) stop() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }

// goOn has a stopped worker go on where it stood.
func (p *process) goOn() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

// mayWrite has the worker write without being asked to, now and from now on.
func (p *process) mayWrite() error { return p.in.Close() }
