// Package proc runs other programs, such as redis-server, for tests and benchmarks.
package proc

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
)

// A Server is a program that runs as a child process in a folder of its own. On Linux it
// ends with its parent, however the parent ends. Other systems leave it behind when the parent
// is killed.
type Server struct {
	Program string // its path
	Args    []string
	Dir     string                      // its working folder, which also has its log
	Account string                      // runs the program if the parent is root; "" for root
	Quit    syscall.Signal              // ends the server in Stop, and when the parent dies; 0 for SIGKILL
	Ready   func(context.Context) error // returns nil once the server answers

	cmd    *exec.Cmd
	exited chan struct{} // closed once the process is gone and its ports are free
}

// New returns a server with a new temporary folder. The caller sets its other fields, starts
// the server, and must Stop it.
func New(program string) (*Server, error) {
	dir, err := os.MkdirTemp("", filepath.Base(program)+"-")
	return &Server{Program: program, Dir: dir}, err
}

// Start starts the server and returns when it is ready. After an error, which has the end of
// its log, the server does not run. ctx bounds the start only.
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
	if err = s.launch(cmd); err != nil {
		return err
	}
	if err = s.Await(ctx, s.Ready); err != nil {
		s.Kill()
	}
	return err
}

// Command returns a program that runs in the server's folder and by its account, with
// messages in English.
func (s *Server) Command(ctx context.Context, program string, args ...string) (*exec.Cmd, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env = s.Dir, append(os.Environ(), "LC_ALL=C")
	cmd.SysProcAttr = dieWithParent(cmp.Or(s.Quit, syscall.SIGKILL))
	if s.Account == "" || os.Geteuid() != 0 {
		return cmd, nil
	}
	return cmd, runAs(cmd, s.Account)
}

// Await waits until check returns nil, as [expect.Until] does, or the server has ended. The
// error has the end of the server's log.
func (s *Server) Await(ctx context.Context, check func(context.Context) error) error {
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := expect.Until(waiting, func() error {
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
	return fmt.Errorf("%s: %w; its log:\n%s", s, err, s.Log())
}

// launch starts the program.
func (s *Server) launch(cmd *exec.Cmd) error {
	started, exited := make(chan error), make(chan struct{})
	go func() {
		defer close(exited)
		// Linux sends the parent-death signal when the thread ends that started the child. A
		// locked goroutine has a thread to itself, and lives until the child is gone.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // the state tells more
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	s.cmd, s.exited = cmd, exited
	return nil
}

// String names the program with its arguments.
func (s *Server) String() string { return fmt.Sprintf("%s %q", filepath.Base(s.Program), s.Args) }

// PID returns the id of the process.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Gone returns nil while the server runs, and then an error that says how it ended.
func (s *Server) Gone() error {
	select {
	case <-s.exited:
		return fmt.Errorf("it has ended: %v", s.cmd.ProcessState)
	default:
		return nil
	}
}

// Log returns the end of what the server wrote: as much as a failed test shows.
func (s *Server) Log() []byte {
	log, err := os.ReadFile(s.logFile())
	if err != nil {
		return []byte(err.Error())
	}
	return end(log)
}

func end(log []byte) []byte {
	const shown = 8 << 10
	return log[max(0, len(log)-shown):]
}

func (s *Server) logFile() string { return filepath.Join(s.Dir, "log") }

// Kill ends the server by SIGKILL, as a crash would, and waits until it is gone. On a dead
// server it does nothing.
func (s *Server) Kill() { s.end(syscall.SIGKILL) }

// end ends the process if there is one, and waits until it is gone.
func (s *Server) end(by syscall.Signal) {
	if s.cmd == nil {
		return
	}
	kill := func() { _ = s.cmd.Process.Kill() }
	if err := s.cmd.Process.Signal(by); err != nil {
		kill() // it has ended, or the system has no such signal
	}
	const stuck = 20 * time.Second
	defer time.AfterFunc(stuck, kill).Stop()
	<-s.exited
}

// Pause stops the server by SIGSTOP and returns when it stands still. Connections stay open,
// or the kernel accepts them, and nothing answers. Pause panics if the server is dead, and on a
// system without this signal.
func (s *Server) Pause() {
	s.must(s.pause())
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for !s.stopped() && s.Gone() == nil {
		<-ticker.C
	}
}

// stopped reports whether SIGSTOP has taken effect, which it does some time after it was sent.
// A system without /proc does not tell.
func (s *Server) stopped() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.PID()))
	// The state follows the program's name, which stands in parentheses.
	return err != nil || bytes.HasPrefix(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" T"))
}

// Resume lets a paused server go on. The server then answers what was sent meanwhile. Resume panics
// if the server is dead.
func (s *Server) Resume() { s.must(s.resume()) }

func (s *Server) must(err error) {
	if err != nil {
		panic(fmt.Sprintf("%s: %v", s, err))
	}
}

// Restart kills the server if it still runs, and starts it again with the same arguments and
// folder. Restart returns when the server is ready.
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
	s.end(cmp.Or(s.Quit, syscall.SIGKILL))
	_ = os.RemoveAll(s.Dir) // what is left lies among the temporary files
}

// StopAfter stops the server as the cleanup of a test, and shows its log if that failed.
func (s *Server) StopAfter(tb testing.TB) {
	tb.Helper()
	if tb.Failed() {
		tb.Logf("the log of %s:\n%s", s, s.Log())
	}
	s.Stop()
}
