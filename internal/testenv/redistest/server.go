package redistest

import (
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

	// Addr is its address, "127.0.0.1:port". The folder outlives Kill and Restart.
	Addr string

	password string
	tls      *tls.Config // of its clients; nil when it speaks no TLS
}

// Run starts a redis-server, which the caller must Stop. args end the server's command line. By
// default the server keeps nothing on disk. With "--appendonly", "yes", "--appendfsync", "always"
// it remembers every acknowledged write.
func Run(ctx context.Context, args ...string) (*Server, error) { return run(ctx, nil, args) }

// Start is Run until the test's cleanup.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	s, err := Run(tb.Context(), args...)
	return proc.ForTest(tb, s, err)
}

// shared is state of the package, as the tests of a process share it.
var shared proc.Shared[*Server]

// Shared returns a server that all tests of this process use together. Each test must use its own
// keys, such as a queue or resource named after the test. None may kill, pause, flush or configure
// the server. Tests that do not overlap in time may get different servers.
func Shared(tb testing.TB) *Server {
	tb.Helper()
	return shared.Use(tb, func() (*Server, error) { return Run(tb.Context()) })
}

// run starts a server for clients with or without TLS.
func run(ctx context.Context, clients *tls.Config, args []string) (*Server, error) {
	program, err := proc.Look("redis-server", "redis-server")
	if err != nil {
		return nil, err
	}
	p, err := proc.New(program)
	if err != nil {
		return nil, err
	}
	s := &Server{Server: p, password: option(args, "--requirepass"), tls: clients}
	s.Ready = s.answers
	err = proc.OnFreePorts(func() (err error) {
		if s.Addr, err = proc.FreeAddr(ctx); err != nil {
			return err
		}
		s.Args = s.commandLine(args)
		return s.Start(ctx)
	})
	if err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// commandLine adds to args what callers may not choose: Redis takes the later of an option
// given twice.
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
	// Another program that has the port need not answer.
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

// Patience is the ReadTimeout of the clients of tests: a busy machine may stand still for some seconds.
const Patience = time.Minute

// options are those of a client that fails by the caller's deadline.
func (s *Server) options() *redis.Options {
	return &redis.Options{Addr: s.Addr, Password: s.password, TLSConfig: s.tls, ReadTimeout: Patience, ContextTimeoutEnabled: true}
}

// Client returns a new client of the server, closed at the test's cleanup. Calls end with their
// context's deadline (ContextTimeoutEnabled).
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
