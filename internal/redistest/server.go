package redistest

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testbin"
	"github.com/sidingq/siding/internal/testproc"
)

// A Server is one running redis-server.
type Server struct {
	// Addr is its address, "127.0.0.1:port". It outlives Kill and Restart.
	Addr string
	// Dir is its working folder, where its data and its log ("redis.log") are.
	Dir string

	program  string
	args     []string
	password string
	tls      *tls.Config // of its clients; nil when it speaks no TLS
	process  *testproc.Process
}

// Start runs a redis-server until the test's cleanup. It keeps nothing on disk
// unless args, which are added to its command line, say so: with "--appendonly",
// "yes", "--appendfsync", "always" it remembers every acknowledged write.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	s := startIn(tb, find(tb), tb.TempDir(), nil, args)
	tb.Cleanup(func() { s.stop(tb) })
	return s
}

// find returns the path of redis-server, or ends the test.
func find(tb testing.TB) string {
	tb.Helper()
	return testbin.Find(tb, "redis-server", "redis-server")
}

// startIn starts a server in dir; the caller stops it.
func startIn(tb testing.TB, program, dir string, clients *tls.Config, args []string) *Server {
	tb.Helper()
	s := &Server{
		Dir:      dir,
		program:  program,
		args:     args,
		password: option(args, "--requirepass"),
		tls:      clients,
	}
	// Nothing reserves a port between its choice and the server's bind, so
	// somebody else may be first: then another one is tried.
	const attempts = 10
	var err error
	for range attempts {
		s.Addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(testproc.FreePort(tb)))
		if err = s.run(tb.Context()); err == nil {
			return s
		}
		if !s.portTaken() {
			break
		}
	}
	tb.Fatalf("redis-server %q: %v; its log:\n%s", args, err, s.logTail())
	return nil
}

// run starts the process and returns once it answers, or with the reason why it
// does not. In case of an error no process is left.
func (s *Server) run(ctx context.Context) error {
	log, err := os.OpenFile(s.logFile(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own
	_, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		return err
	}
	// Of an option given twice the later counts: what follows is not for callers
	// to choose.
	args := slices.Concat(s.args, []string{
		"--bind", "127.0.0.1", "--port", port, "--dir", s.Dir, "--daemonize", "no",
		"--repl-diskless-sync-delay", "0", // by default replicas are served 5 s later
	})
	if s.tls != nil {
		args = append(args, "--tls-port", port, "--port", "0")
	}
	if !slices.Contains(args, "--save") {
		args = append(args, "--save", "")
	}
	if s.process, err = testproc.Start(s.program, s.Dir, log, args); err != nil {
		return err
	}
	if err = s.answers(ctx); err != nil {
		s.process.Kill()
	}
	return err
}

// answers waits until the process answers a PING.
func (s *Server) answers(ctx context.Context) error {
	client := redis.NewClient(s.options())
	defer client.Close()
	return testproc.Poll(ctx, func() error {
		if err := s.process.Gone(); err != nil {
			return err
		}
		// Whoever else may have the port need not answer at all.
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := client.Ping(ctx).Err(); err != nil {
			return err
		}
		// When the port was taken, it is somebody else who answers.
		info, err := client.Info(ctx, "server").Result()
		if err != nil {
			return err
		}
		if want := fmt.Sprintf("process_id:%d\r\n", s.process.PID); !strings.Contains(info, want) {
			return fmt.Errorf("%s: another server answers there", s.Addr)
		}
		return nil
	})
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

// Kill ends the server by SIGKILL, as a crash would, and waits until it is
// gone. Killing a dead server does nothing.
func (s *Server) Kill() { s.process.Kill() }

// Pause stops the server by SIGSTOP: connections stay open, or are accepted by
// the kernel, and nothing is answered. When Pause returns the server stands
// still. It panics when the server is dead.
func (s *Server) Pause() { s.must(s.process.Pause()) }

// Resume lets a paused server go on; it then answers what was sent meanwhile.
func (s *Server) Resume() { s.must(s.process.Resume()) }

func (s *Server) must(err error) {
	if err != nil {
		panic(fmt.Sprintf("redis-server at %s: %v", s.Addr, err))
	}
}

// Restart kills the server if it still runs and starts it again on the same
// port, in the same folder and with the same arguments. It comes back empty
// unless these keep its data.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	if err := s.Revive(tb.Context()); err != nil {
		tb.Fatal(err)
	}
}

// Revive is Restart for other goroutines than the test's own.
func (s *Server) Revive(ctx context.Context) error {
	s.Kill()
	// The port lies where the kernel gives none to others, so it is ours again
	// but for a test process that happens to choose the same one just now.
	if err := s.run(ctx); err != nil {
		return fmt.Errorf("redis-server: restart at %s: %w; its log:\n%s", s.Addr, err, s.logTail())
	}
	return nil
}

// stop ends the server at the cleanup of a test, and shows its log if that failed.
func (s *Server) stop(tb testing.TB) {
	tb.Helper()
	s.Kill()
	if tb.Failed() {
		tb.Logf("the log of redis-server at %s:\n%s", s.Addr, s.logTail())
	}
}

func (s *Server) logFile() string { return filepath.Join(s.Dir, "redis.log") }

// logTail returns the end of the log.
func (s *Server) logTail() []byte { return testproc.LogTail(s.logFile()) }

// portTaken reports whether the last run ended because of its port.
func (s *Server) portTaken() bool {
	return bytes.Contains(s.logTail(), []byte("Address already in use"))
}

// option returns the argument after name, or "".
func option(args []string, name string) string {
	if i := slices.Index(args, name); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}
	return ""
}
