// Package testproc is what the packages that start servers for tests have in
// common: child processes that end with the test process, free ports, and waits
// for something to become true.
package testproc

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// A Process is one run of a program.
type Process struct {
	PID    int
	exited chan struct{} // closed once the process is gone and its ports are free
	err    error         // how it ended; to be read after exited
	signal func(os.Signal) error
}

// Start runs the program in dir with its output appended to log.
func Start(program, dir string, log *os.File, args []string) (*Process, error) {
	cmd := exec.Command(program, args...) //nolint:noctx // ended by Kill, which also waits
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	cmd.SysProcAttr = dieWithParent()

	p := &Process{exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		// Linux sends the parent-death signal when the starting *thread* ends.
		// A locked goroutine keeps its thread from any other use, and lives
		// until the child is gone.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			p.PID, p.signal = cmd.Process.Pid, cmd.Process.Signal
		}
		started <- err
		if err != nil {
			return
		}
		p.err = cmd.Wait()
		close(p.exited)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	return p, nil
}

// Kill ends the process by SIGKILL, also a paused one, and waits until it is
// gone. It may be called again.
func (p *Process) Kill() {
	// The only error is that it has ended already.
	_ = p.signal(syscall.SIGKILL)
	<-p.exited
}

// Pause stops the process by SIGSTOP: connections stay open, or are accepted by
// the kernel, and nothing is answered. When it returns the process stands still,
// or is gone. The error says that it was gone before.
func (p *Process) Pause() error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	ticker := time.NewTicker(glance)
	defer ticker.Stop()
	for !stopped(p.PID) && p.Gone() == nil {
		<-ticker.C
	}
	return nil
}

// Resume lets a paused process go on; it then answers what was sent meanwhile.
func (p *Process) Resume() error { return p.signal(syscall.SIGCONT) }

// Gone returns how the process has ended, as a [PermanentError], or nil if it has
// not.
func (p *Process) Gone() error {
	select {
	case <-p.exited:
		return PermanentError{fmt.Errorf("ended with: %w", p.err)}
	default:
		return nil
	}
}
