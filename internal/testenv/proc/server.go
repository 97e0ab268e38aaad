// Package proc runs other programs, such as redis-server, for tests and benchmarks.
package proc

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/poll"
)

// A Server is a program that runs as a child process, with a folder of its own. On
// Linux it ends with its parent, however that ends; elsewhere a parent that is
// killed leaves it behind.
type Server struct {
	// Program is its path, and Args are its arguments.
	Program string
	Args    []string
	// Dir is its working folder, where it also writes its log.
	Dir string
	// Account is the user that runs it where the parent is root. "" means root.
	Account string
	// Quit is the signal by which Stop, or the parent's death, ends it. 0 means SIGKILL.
	Quit syscall.Signal
	// Ready returns nil once the server answers.
	Ready func(context.Context) error

	child *child
}

// New returns a server with a new temporary folder, not yet started. The caller sets
// its other fields, starts it, and must Stop it.
func New(program string) (*Server, error) {
	dir, err := os.MkdirTemp("", filepath.Base(program)+"-")
	return &Server{Program: program, Dir: dir}, err
}

// Start starts the server and returns when it is ready. In case of an error, which
// holds the end of its log, it does not run. ctx bounds the start only.
func (s *Server) Start(ctx context.Context) error {
	log, err := os.OpenFile(s.logFile(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own
	cmd, err := s.Command(context.WithoutCancel(ctx), s.Program, s.Args...)
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = log, log
	if s.child, err = launch(cmd); err != nil {
		return err
	}
	if err = s.Await(ctx, s.Ready); err != nil {
		s.Kill()
	}
	return err
}

// Command returns a program to be run in the server's folder and by its account,
// whose messages are in English.
func (s *Server) Command(ctx context.Context, program string, args ...string) (*exec.Cmd, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env = s.Dir, append(os.Environ(), "LC_ALL=C")
	cmd.SysProcAttr = dieWithParent(s.quit())
	if s.Account == "" || os.Geteuid() != 0 {
		return cmd, nil
	}
	return cmd, runAs(cmd, s.Account)
}

// Await waits until check returns nil, as [poll.Until] does. It gives up at once when
// the server has ended. The error holds the end of the server's log.
func (s *Server) Await(ctx context.Context, check func(context.Context) error) error {
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := poll.Until(waiting, func() error {
		if err := s.Gone(); err != nil {
			cancel(err)
			return err
		}
		return check(waiting)
	})
	if err == nil {
		return nil
	}
	if gone := s.Gone(); gone != nil {
		err = gone
	}
	return fmt.Errorf("%s %q: %w; its log:\n%s", filepath.Base(s.Program), s.Args, err, s.Log())
}

// PID returns the id of the process.
func (s *Server) PID() int { return s.child.process.Pid }

// Gone returns nil while the server runs, and then an error with how it ended.
func (s *Server) Gone() error {
	select {
	case <-s.child.exited:
		return fmt.Errorf("it has ended: %v", s.child.state)
	default:
		return nil
	}
}

// Log returns the end of what the server wrote, as much of it as a failed test shows.
func (s *Server) Log() []byte {
	const shown = 8 << 10
	log, err := os.ReadFile(s.logFile())
	if err != nil {
		return []byte(err.Error())
	}
	return log[max(0, len(log)-shown):]
}

// Kill ends the server by SIGKILL, as a crash would, and waits until it is gone.
// Killing a dead server does nothing.
func (s *Server) Kill() { s.child.end(syscall.SIGKILL) }

// Pause stops the server by SIGSTOP: connections stay open, or are accepted by the
// kernel, and nothing is answered. When Pause returns the server stands still. It
// panics when the server is dead, and on a system without this signal.
func (s *Server) Pause() {
	s.must(s.child.pause())
	const glance = time.Millisecond
	ticker := time.NewTicker(glance)
	defer ticker.Stop()
	for !stopped(s.PID()) && s.Gone() == nil {
		<-ticker.C
	}
}

// Resume lets a paused server go on; it then answers what was sent meanwhile. It
// panics when the server is dead.
func (s *Server) Resume() { s.must(s.child.resume()) }

func (s *Server) must(err error) {
	if err != nil {
		panic(fmt.Sprintf("%s %q: %v", filepath.Base(s.Program), s.Args, err))
	}
}

// Restart kills the server if it still runs and starts it again, with the same
// arguments in the same folder. It returns when the server is ready.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	if err := s.Revive(tb.Context()); err != nil {
		tb.Fatal(err)
	}
}

// Revive is Restart for other goroutines than a test's own.
func (s *Server) Revive(ctx context.Context) error {
	s.Kill()
	return s.Start(ctx)
}

// Stop ends the server if it runs, waits until it is gone and removes its folder.
func (s *Server) Stop() {
	s.child.end(s.quit())
	_ = os.RemoveAll(s.Dir) // what is left lies among the temporary files
}

// StopAfter stops the server as the cleanup of a test, and shows its log if that failed.
func (s *Server) StopAfter(tb testing.TB) {
	tb.Helper()
	if tb.Failed() {
		tb.Logf("the log of %s %q:\n%s", filepath.Base(s.Program), s.Args, s.Log())
	}
	s.Stop()
}

func (s *Server) quit() syscall.Signal {
	if s.Quit == 0 {
		return syscall.SIGKILL
	}
	return s.Quit
}

func (s *Server) logFile() string { return filepath.Join(s.Dir, "log") }

// A child is one run of a program.
type child struct {
	process *os.Process
	exited  chan struct{}    // closed once the process is gone and its ports are free
	state   *os.ProcessState // how it ended; to be read after exited
}

func launch(cmd *exec.Cmd) (*child, error) {
	c := &child{exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		// Linux sends the parent-death signal when the starting *thread* ends.
		// A locked goroutine keeps its thread from any other use, and lives
		// until the child is gone.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		c.process = cmd.Process
		started <- err
		if err != nil {
			return
		}
		_ = cmd.Wait() // the state tells more
		c.state = cmd.ProcessState
		close(c.exited)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return c, nil
}

// end ends the process if there is one, and waits until it is gone.
func (c *child) end(by syscall.Signal) {
	if c == nil {
		return
	}
	if err := c.process.Signal(by); err != nil {
		_ = c.process.Kill() // it has ended, or the system has no such signal
	}
	const stuck = 20 * time.Second
	timer := time.AfterFunc(stuck, func() { _ = c.process.Kill() })
	defer timer.Stop()
	<-c.exited
}
