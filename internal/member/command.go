package member

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sidingq/siding/internal/cli"
	"github.com/sidingq/siding/internal/config"
	"github.com/sidingq/siding/internal/dashboard"
	"github.com/sidingq/siding/internal/embedded"
	"github.com/sidingq/siding/internal/metrics"
)

// A command is one run of a program.
type command struct {
	Program

	stderr  io.Writer
	serving bool // the command line and the settings are right

	file     string // of settings
	embedded bool
	port     int    // of the embedded Redis
	probe    string // to ask a running worker for; empty to run a worker
	given    []config.Override
}

func (c *command) root() *cobra.Command {
	root := &cobra.Command{
		Use:   c.Name,
		Short: "Run a worker of a Siding fleet",
		Long: c.Name + ` takes tasks from Redis and runs them. A task whose resource is locked is
parked, and runs in its turn once the lock is free; meanwhile the worker runs
other tasks. The worker serves the dashboard, /metrics, /healthz and /readyz.

SIGTERM and Ctrl-C drain the worker: running tasks may finish within
shutdown.timeout. A second signal, half a second later or more, ends it at once;
unfinished tasks then run again elsewhere.

Settings come from flags, from the environment (--lock-ttl is SIDING_LOCK_TTL) and
from a file, in this order of precedence.

Exit status: 0 all is well; 1 a fault, such as Redis that cannot be reached at
the start, or a drain that did not end in time; 2 the command line or a setting
is wrong.`,
		Args:              cli.None,
		RunE:              func(cmd *cobra.Command, _ []string) error { return c.run(cmd) },
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w\n%s --help lists the flags", config.FlagError(cmd.Flags(), err), c.Name)
	})
	cli.AddVersion(root)
	f := root.Flags()
	f.SortFlags = false
	if c.Command != nil {
		c.Command(root)
	}
	f.BoolVar(&c.embedded, "embedded", false, "Run on a Redis inside this process, which forgets everything at its end.")
	f.IntVar(&c.port, "embedded-port", 0, "The `port` of the embedded Redis on 127.0.0.1; 0 is 6379, or a free one if that is taken.")
	config.AddFileFlag(f, &c.file, "The `file` of settings; $SIDING_CONFIG if not given, else config.yaml if it is there.")
	f.StringVar(&c.probe, "probe", "", "Ask the worker that runs with these settings for `healthz` or readyz, and end; status 0 if it answers 200.")
	config.AddFlags(f, &c.given, func(s config.Setting) bool { return c.Ledger || s.Flag != "ledger" })
	return root
}

// run checks the command line and the settings, and serves.
func (c *command) run(cmd *cobra.Command) error {
	if err := c.check(cmd); err != nil {
		return err
	}
	cfg, err := config.Sources{File: c.file, Environ: c.Environ, Flags: c.given}.Load()
	if err != nil {
		return err
	}
	if cmd.Flags().Changed("probe") {
		return c.ask(cmd, cfg)
	}
	if err := checkExposure(cfg); err != nil {
		return err
	}
	c.serving = true
	draining, drain := context.WithCancel(cmd.Context())
	defer drain()
	defer c.bound(draining, cfg.HardDeadline)()
	if c.embedded {
		own, err := c.embed(&cfg)
		if err != nil {
			return err
		}
		defer own.Close()
	}
	m, err := c.member(cfg)
	if err != nil {
		return err
	}
	m.countdown = drain
	return c.Serve(cmd.Context(), m)
}

// bound ends the process when the limit has passed since ctx ended. The result calls that off.
func (c *command) bound(ctx context.Context, limit time.Duration) (over func()) {
	ended := make(chan struct{})
	context.AfterFunc(ctx, func() {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		select {
		case <-ended:
		case <-timer.C:
			c.end(c.stderr, fmt.Sprintf("shutdown.hard_deadline: %v have passed, and the drain has not ended", limit))
		}
	})
	return func() { close(ended) }
}

// check refuses flags that do not go together.
func (c *command) check(cmd *cobra.Command) error {
	switch {
	case cmd.Flags().Changed("embedded-port") && !c.embedded:
		return errors.New("--embedded-port: want --embedded with it")
	case c.port < 0 || c.port > 65535:
		return fmt.Errorf("--embedded-port: want 0 to 65535, have %d", c.port)
	case cmd.Flags().Changed("probe") && c.probe != "healthz" && c.probe != "readyz":
		return fmt.Errorf("--probe: want healthz or readyz, have %q", c.probe)
	case c.probe != "" && c.embedded:
		return errors.New("--probe: want a worker that runs, have --embedded, which starts another")
	}
	for _, o := range c.given {
		if c.embedded && strings.HasPrefix(o.Flag, "redis") {
			return fmt.Errorf("--%s: want another Redis or an embedded one, have both", o.Flag)
		}
	}
	return nil
}

// checkExposure refuses a dashboard without a password that other machines can reach, even a
// read-only one: it shows payloads. The table of settings has no such rule, as other programs read
// the same file without the worker's environment. The password may be there.
func checkExposure(cfg config.Config) error {
	h := cfg.HTTP
	if h.Address == "" || !h.Dashboard || h.Password != "" || h.PasswordFile != "" || dashboard.Loopback(h.Address) {
		return nil
	}
	return fmt.Errorf("%s: others can reach %s: want SIDING_HTTP_PASSWORD or http.password_file, or http.dashboard false, have neither",
		cfg.Place("http.address"), h.Address)
}

// embeddedTimeout is how long the embedded Redis may take to answer. An embedded Redis answers late
// only while this process itself gets no CPU. A shorter timeout would then lose replies. A step whose
// reply is lost is sent again, which takes time.
const embeddedTimeout = 30 * time.Second

// embed starts a Redis inside the process and points the settings at it.
func (c *command) embed(cfg *config.Config) (*embedded.Server, error) {
	own, err := embedded.Start(c.port)
	if err != nil {
		return nil, err
	}
	cfg.Redis = config.Default().Redis
	cfg.Redis.Addrs, cfg.Redis.Timeout = []string{own.Addr()}, embeddedTimeout
	return own, nil
}

// member returns a member that has not begun. The error is that of a setting.
func (c *command) member(cfg config.Config) (*Member, error) {
	// Passwords and certificates are read here, so that a file that is not there is no fault of Redis or of the web server.
	var err error
	if cfg.HTTP.Password, err = cfg.LoginPassword(); err != nil {
		return nil, refusal{err}
	}
	cfg.HTTP.PasswordFile = ""
	m := &Member{Config: cfg, name: c.Name, embedded: c.embedded}
	if cfg.HTTP.Address != "" && cfg.HTTP.Metrics {
		m.metrics = metrics.New()
	}
	logger := cfg.Log.Logger(c.stderr)
	if c.own {
		slog.SetDefault(logger)
	}
	m.Server = cfg.Server(logger, m.observe)
	if m.Redis, err = cfg.RedisOptions(); err != nil {
		return nil, refusal{err}
	}
	m.Redis.ClientName = "siding-worker"
	return m, nil
}
