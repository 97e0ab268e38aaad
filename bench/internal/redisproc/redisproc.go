// Package redisproc runs redis-servers for benchmarks, and reads what they did.
package redisproc

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"strings"

	"github.com/sidingq/siding/bench/internal/proc"
)

// A Server is a redis-server that keeps nothing.
type Server struct {
	Addr string
	*proc.Server
}

// Start runs redis-server on a free port until Stop, or until ctx ends.
func Start(ctx context.Context) (*Server, error) {
	addr, err := proc.Addr(ctx)
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	s, err := proc.Start(ctx, "redis-server", func(dir string) []string {
		return []string{"--bind", "127.0.0.1", "--port", port, "--dir", dir, "--save", "", "--appendonly", "no"}
	})
	if err != nil {
		return nil, err
	}
	if err := s.Await(ctx, func() error { return answers(ctx, addr) }); err != nil {
		s.Stop()
		return nil, err
	}
	return &Server{addr, s}, nil
}

// answers returns why the Redis at addr does not listen, if it does not.
func answers(ctx context.Context, addr string) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return conn.Close()
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
