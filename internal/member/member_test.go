package member

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/sidingq/siding/internal/cli"
	"github.com/sidingq/siding/internal/testenv/clitest"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/proc"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/queue"
)

// asProgram makes the test binary run as a program that does not end, and says where it hangs.
const asProgram = "SIDING_TEST_AS_HANGER"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		hanger.Main()
	}
	logging.Disable()
	goleak.VerifyTestMain(m)
}

type note struct{}

func (note) Kind() string     { return "test:note" }
func (note) Resource() string { return "page:1" }

func register(s *queue.Server) {
	queue.Handle(s, func(context.Context, note) error { return nil })
}

// hanger asks for its own end, by a signal or without one, and then does not end.
var hanger = Program{
	Name: "hanger",
	Serve: func(ctx context.Context, m *Member) error {
		ctx, end := context.WithCancel(ctx)
		defer say(os.Stderr, "closed\n")
		hang := func(where string, ask func()) {
			if os.Getenv(asProgram) == where {
				ask()
				select {}
			}
		}
		signal := func() {
			if self, err := os.FindProcess(os.Getpid()); err == nil {
				_ = self.Signal(syscall.SIGTERM) // the test waits for what follows
			}
		}
		m.Prepare = func(context.Context) error {
			hang("prepare", signal)
			return nil
		}
		err := m.Run(ctx, func(s *queue.Server) {
			hang("register", signal)
			register(s)
		}, func(context.Context, string) error {
			hang("beside", end)
			return nil
		})
		hang("closing", func() {})
		return err
	},
	Cleanup: func() { say(os.Stderr, "cleaned up\n") },
}

// hang runs the hanger.
func hang(t *testing.T, where, redis string, stderr io.Writer) *proc.Program {
	t.Helper()
	cmd := exec.Command(os.Args[0], "--redis", redis, "--http", "off", "--shutdown-timeout", "100ms", "--shutdown-hard-deadline", "300ms") //nolint:noctx // killed at cleanup
	cmd.Env, cmd.Dir, cmd.Stderr = append(os.Environ(), asProgram+"="+where), t.TempDir(), stderr
	return proc.Launch(t, cmd)
}

// At the hard deadline the process ends, wherever it hangs. Cleanup removes temporary files, and closes nothing that
// tasks still use.
func TestHardDeadlineEndsTheProcess(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, where := range []string{"register", "prepare", "beside", "closing"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			p := hang(t, where, server.Addr, nil)
			expect.Equal(t, "exit status", p.Wait(t, 30*time.Second), cli.StatusFault)
			const want = "hanger: shutdown.hard_deadline: 300ms have passed, and the drain has not ended\ncleaned up\n"
			if have := p.Stderr.String(); !strings.HasSuffix(have, want) || strings.Contains(have, "closed") {
				t.Errorf("want %q at the end, and nothing closed, have %s", want, have)
			}
		})
	}
}

// So it does if nobody reads what it says.
func TestHardDeadlineUnread(t *testing.T) {
	t.Parallel()
	p := hang(t, "prepare", redistest.Start(t).Addr, proc.FullPipe(t))
	expect.Equal(t, "exit status", p.Wait(t, 30*time.Second), cli.StatusFault)
}

// Each fault is said once, with its status.
func TestServe(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	failed := errors.New("out of ink")
	for name, c := range map[string]struct {
		serve  func(context.Context, *Member) error
		args   []string
		status int
		want   string
	}{
		"error":          {func(context.Context, *Member) error { return failed }, nil, cli.StatusFault, "own: out of ink"},
		"refused":        {func(_ context.Context, m *Member) error { return m.Refuse("ledger.dsn", "want a book") }, nil, cli.StatusUsage, "own: ledger.dsn: want a book"},
		"refused a flag": {func(_ context.Context, m *Member) error { return m.Refuse("ledger.dsn", "want a book") }, []string{"--ledger=x"}, cli.StatusUsage, "own: --ledger: want a book"},
		"server": {func(ctx context.Context, m *Member) error {
			m.Server.Asynq.DelayedTaskCheckInterval = time.Microsecond
			return m.Run(ctx, register, nil)
		}, nil, cli.StatusFault, "own: queue: delayed task check interval: want 10ms or more, have 1µs"},
		"middleware": {func(ctx context.Context, m *Member) error { // Redis is all right
			return m.Run(ctx, func(s *queue.Server) { register(s); s.Use(nil) }, nil)
		}, nil, cli.StatusFault, "own: queue: use: middleware 1: want a function, have nil"},
		"another database": {func(ctx context.Context, m *Member) error {
			m.Redis.DB = 99
			return m.Run(ctx, register, nil)
		}, nil, cli.StatusFault, "own: redis " + server.Addr + ": ERR DB index is out of range (redis.db: want "},
		"beside ends": {func(ctx context.Context, m *Member) error {
			return m.Run(ctx, register, func(context.Context, string) error { return nil })
		}, nil, cli.StatusOK, `msg="worker ended"`},
		"beside fails": {func(ctx context.Context, m *Member) error {
			return m.Run(ctx, register, func(context.Context, string) error { return failed })
		}, nil, cli.StatusFault, "own: out of ink"},
		"address": {func(ctx context.Context, m *Member) error {
			return m.Run(ctx, register, func(_ context.Context, url string) error { return errors.New(url) })
		}, []string{"--http-dashboard=false"}, cli.StatusFault, "own: http://127.0.0.1:"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log proc.Output
			p := Program{Name: "own", Ledger: true, Serve: c.serve}
			if have := p.Run(t.Context(), append([]string{"--redis", server.Addr, "--http", "127.0.0.1:0"}, c.args...), io.Discard, &log); have != c.status {
				t.Errorf("want exit status %d, have %d", c.status, have)
			}
			if have := strings.Count(log.String(), c.want); have != 1 {
				t.Errorf("want %q once, have %s", c.want, log.String())
			}
		})
	}
}

// A program's own flags come before the others, and its check before that of the settings.
func TestCommand(t *testing.T) {
	t.Parallel()
	var page string
	p := Program{Name: "own", Command: func(cmd *cobra.Command) {
		cmd.Flags().StringVar(&page, "page", "", "The page.")
		cmd.PreRunE = func(*cobra.Command, []string) error { return errors.New("want no page " + page) }
	}}
	var out, log proc.Output
	if have := p.Run(t.Context(), []string{"--page", "7", "--concurrency", "0"}, &out, &log); have != cli.StatusUsage || log.String() != "own: want no page 7\n" {
		t.Errorf("want the page refused, have %d, %s", have, log.String())
	}
	if p.Run(t.Context(), []string{"--help"}, &out, &log); strings.Index(out.String(), "--page") > strings.Index(out.String(), "--embedded") {
		t.Errorf("want --page first, have %s", out.String())
	}
}

func TestFlags(t *testing.T) {
	t.Parallel()
	clitest.Flags(t, (&command{}).root())
}
