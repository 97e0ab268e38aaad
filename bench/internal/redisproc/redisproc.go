// Package redisproc runs redis-servers for benchmarks, and reads what they did.
package redisproc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/sidingq/siding/bench/internal/contest"
)

// A Server is a redis-server that keeps nothing.
type Server struct {
	Addr string

	dir string
	end context.CancelFunc
	cmd *exec.Cmd
}

// Start runs redis-server on a free port until Stop, or until ctx ends.
func Start(ctx context.Context) (*Server, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "bench-redis-")
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, "redis-server",
		"--bind", "127.0.0.1", "--port", port, "--dir", dir, "--save", "", "--appendonly", "no")
	s := &Server{Addr: addr, dir: dir, end: end, cmd: cmd}
	if err := cmd.Start(); err != nil {
		end()
		return nil, errors.Join(fmt.Errorf("start a Redis: %w", err), os.RemoveAll(dir))
	}
	if err := answers(ctx, addr); err != nil {
		s.Stop()
		return nil, fmt.Errorf("start a Redis: %w", err)
	}
	return s, nil
}

// Stop kills the server and waits until it is gone.
func (s *Server) Stop() {
	s.end()
	// It ends by a signal and keeps nothing, so neither error means anything.
	_ = s.cmd.Wait()
	_ = os.RemoveAll(s.dir)
}

// answers waits until the Redis at addr answers.
func answers(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var dialer net.Dialer
	for {
		conn, err := dialer.DialContext(ctx, "tcp", addr)
		if err == nil {
			return conn.Close()
		}
		if paused := contest.Pause(ctx, 10*time.Millisecond); paused != nil {
			return err
		}
	}
}

// Version returns that of redis-server, such as "Redis 7.0.15".
func Version(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "redis-server", "--version").Output()
	if err != nil {
		return "", fmt.Errorf("ask redis-server for its version: %w", err)
	}
	_, rest, _ := strings.Cut(string(out), "v=")
	number, _, _ := strings.Cut(rest, " ")
	return "Redis " + number, nil
}
