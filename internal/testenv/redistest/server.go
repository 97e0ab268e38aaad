package redistest

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/proc"
)

// A Server is one redis-server.
type Server struct {
	*proc.Server

	// Addr is its address, "127.0.0.1:port". It outlives Kill and Restart.
	Addr string

	password string
	tls      *tls.Config // of its clients; nil when it speaks no TLS
}

// Run starts a redis-server, which the caller must Stop. It keeps nothing on disk
// unless args, which are added to its command line, say so: with "--appendonly",
// "yes", "--appendfsync", "always" it remembers every acknowledged write.
func Run(ctx context.Context, args ...string) (*Server, error) {
	program, err := proc.Look(debianPackage, name)
	if err != nil {
		return nil, err
	}
	return run(ctx, program, nil, args)
}

// Start is Run until the test's cleanup.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	s := start(tb, nil, args)
	tb.Cleanup(func() { s.StopAfter(tb) })
	return s
}

// The program, and what to install for it.
const name, debianPackage = "redis-server", "redis-server"

// start starts a server that the caller stops.
func start(tb testing.TB, clients *tls.Config, args []string) *Server {
	tb.Helper()
	s, err := run(tb.Context(), proc.Find(tb, debianPackage, name), clients, args)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func run(ctx context.Context, program string, clients *tls.Config, args []string) (*Server, error) {
	p, err := proc.New(program)
	if err != nil {
		return nil, err
	}
	s := &Server{Server: p, password: option(args, "--requirepass"), tls: clients}
	s.Ready = s.answers
	// Nothing reserves a port between its choice and the server's bind, so
	// somebody else may be first: then another one is tried.
	const attempts = 10
	for range attempts {
		if s.Addr, err = proc.FreeAddr(ctx); err != nil {
			break
		}
		s.Args = s.commandLine(args)
		if err = s.Start(ctx); err == nil {
			return s, nil
		}
		if !bytes.Contains(s.Log(), []byte("Address already in use")) {
			break
		}
	}
	s.Stop()
	return nil, err
}

// commandLine adds to args what is not for callers to choose: of an option given
// twice the later counts.
func (s *Server) commandLine(args []string) []string {
	_, port, _ := net.SplitHostPort(s.Addr)
	all := slices.Concat(args, []string{
		"--bind", "127.0.0.1", "--port", port, "--dir", s.Dir, "--daemonize", "no",
		"--repl-diskless-sync-delay", "0", // by default replicas are served 5 s later
	})
	if s.tls != nil {
		all = append(all, "--tls-port", port, "--port", "0")
	}
	if !slices.Contains(all, "--save") {
		all = append(all, "--save", "")
	}
	return all
}

// answers returns nil when the server itself answers at its address.
func (s *Server) answers(ctx context.Context) error {
	client := redis.NewClient(s.options())
	defer client.Close()
	// Whoever else may have the port need not answer at all.
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := client.Ping(ctx).Err(); err != nil {
		return err
	}
	info, err := client.Info(ctx, "server").Result()
	if err != nil {
		return err
	}
	if want := fmt.Sprintf("process_id:%d\r\n", s.PID()); !strings.Contains(info, want) {
		return fmt.Errorf("%s: another server answers there", s.Addr)
	}
	return nil
}

// options are those of a client that fails fast and by the caller's deadline.
func (s *Server) options() *redis.Options {
	return &redis.Options{Addr: s.Addr, Password: s.password, TLSConfig: s.tls, ContextTimeoutEnabled: true}
}

// Client returns a new client of the server, closed at the test's cleanup. Its
// calls end with their context's deadline (ContextTimeoutEnabled).
func (s *Server) Client(tb testing.TB) *redis.Client {
	tb.Helper()
	client := redis.NewClient(s.options())
	// A test that closes the client itself meets redis.ErrClosed here.
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

// option returns the argument after name, or "".
func option(args []string, name string) string {
	if i := slices.Index(args, name); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}
	return ""
}
