package redistest

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// A process is one run of redis-server.
type process struct {
	pid    int
	exited chan struct{} // closed once the process is gone and its ports are free
	err    error         // how it ended; to be read after exited
	signal func(os.Signal) error
}

// startProcess runs the program in dir with its output appended to log.
func startProcess(program, dir string, log *os.File, args []string) (*process, error) {
	cmd := exec.Command(program, args...) //nolint:noctx // ended by kill, which also waits
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	cmd.SysProcAttr = dieWithParent()

	p := &process{exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		// Linux sends the parent-death signal when the starting *thread* ends.
		// A locked goroutine keeps its thread from any other use, and lives
		// until the child is gone.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			p.pid, p.signal = cmd.Process.Pid, cmd.Process.Signal
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

// kill ends the process, also a stopped one, and waits until it is gone. It
// may be called again.
func (p *process) kill() {
	// The only error is that it has ended already.
	_ = p.signal(syscall.SIGKILL)
	<-p.exited
}

// gone reports whether the process has ended.
func (p *process) gone() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}
