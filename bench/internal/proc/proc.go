// Package proc runs the servers of benchmarks: child processes that end with the
// program, each with a folder of its own.
package proc

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/sidingq/siding/internal/testproc"
)

// A Server is one run of a program that keeps what it writes in its folder.
type Server struct {
	*testproc.Process

	name, dir string
	detach    func() bool // from the context
}

// Start runs a program, which is looked up in PATH, with the arguments that it gets for its
// folder. It runs until Stop, or until ctx ends.
func Start(ctx context.Context, program string, args func(dir string) []string) (*Server, error) {
	dir, err := os.MkdirTemp("", "bench-"+program+"-")
	if err != nil {
		return nil, err
	}
	s := &Server{name: program, dir: dir}
	if err := s.launch(args(dir)); err != nil {
		_ = os.RemoveAll(dir) // the other error is the one to tell
		return nil, err
	}
	s.detach = context.AfterFunc(ctx, s.Kill)
	return s, nil
}

func (s *Server) launch(args []string) error {
	log, err := os.Create(s.log())
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own
	s.Process, err = testproc.Start(s.name, s.dir, log, args)
	return err
}

func (s *Server) log() string { return filepath.Join(s.dir, "log") }

// Await waits until ready returns nil. If the server ends before, or never gets there, the
// error has the end of what it wrote.
func (s *Server) Await(ctx context.Context, ready func() error) error {
	err := testproc.Poll(ctx, func() error {
		if err := s.Gone(); err != nil {
			return err
		}
		return ready()
	})
	if err != nil {
		return fmt.Errorf("%s: %w; its log:\n%s", s.name, err, testproc.LogTail(s.log()))
	}
	return nil
}

// Stop kills the server, waits until it is gone, and removes its folder.
func (s *Server) Stop() {
	s.detach()
	s.Kill()
	_ = os.RemoveAll(s.dir) // what is left lies among the temporary files
}

// Addr returns one of this machine that is free.
func Addr(ctx context.Context) (string, error) {
	port, err := testproc.FindPort(ctx)
	if err != nil {
		return "", err
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), nil
}
