package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/sidingq/siding/internal/config"
	"github.com/sidingq/siding/internal/dashboard"
)

// The exit statuses of the program, as its help tells them.
const (
	exitOK    = 0
	exitFault = 1
	exitUsage = 2
)

// A fault is an error that comes from running, not from the command line and
// the settings.
type fault struct{ error }

func (f fault) Unwrap() error { return f.error }

// An app is one run of the program with what it needs from its surroundings.
type app struct {
	stdout, stderr io.Writer
	environ        []string // as os.Environ returns it
	flags          flags
	temporary      atomic.Pointer[string] // a folder to be removed at the end, nil for none
}

// removeTemporary removes the temporary folder, if there is one.
func (a *app) removeTemporary() error {
	if dir := a.temporary.Swap(nil); dir != nil {
		return os.RemoveAll(*dir)
	}
	return nil
}

// flags are those that are no settings.
type flags struct {
	config   string
	work     time.Duration
	embedded bool
	port     int
	demo     bool
	once     bool
	json     bool
	settings []config.Override
}

// run runs the program until it is done or ctx ends, and returns its exit status.
func (a *app) run(ctx context.Context, args []string) int {
	root := a.root(ctx)
	root.SetArgs(args)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	err := root.Execute()
	if err == nil {
		return exitOK
	}
	// Several mistakes come one a line.
	for line := range strings.Lines(err.Error()) {
		a.say("worker: %s\n", strings.TrimSuffix(line, "\n"))
	}
	if _, ok := errors.AsType[fault](err); ok {
		return exitFault
	}
	return exitUsage
}

// say writes to standard error. A terminal that has gone away takes the text
// with it; that is no reason to stop working.
func (a *app) say(format string, args ...any) {
	_, _ = fmt.Fprintf(a.stderr, format, args...)
}

func (a *app) root(ctx context.Context) *cobra.Command {
	root := &cobra.Command{
		Use:   "worker",
		Short: "Run a member of a fleet of Siding's workers",
		Long: `worker takes tasks from Redis and runs them. A task whose resource is locked is
put aside, and called back when the lock is released; meanwhile the worker goes
on with others. It serves the dashboard, /healthz and /readyz.

SIGTERM and Ctrl-C drain it: running tasks may finish, within limits. A second
one, half a second later or more, ends it at once; whatever is unfinished then
runs again elsewhere.

Settings come from flags, from the environment (--lock-ttl is SIDING_LOCK_TTL) and
from a file, in this order of precedence.

Exit status: 0 all is well; 1 a fault, such as Redis that cannot be reached at
the start, or a drain that did not end in time; 2 the command line or a setting
is wrong.`,
		Example: `  worker --demo                     watch tasks fight over orders, with nothing set up
  worker --demo --once --json       the same as a check
  worker --redis redis-1:6379 --queue critical=6 --queue default=3`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.flags.check(cmd); err != nil {
				return err
			}
			cfg, err := a.settings()
			if err == nil {
				err = a.checkExposure(cfg.HTTP)
			}
			if err != nil {
				return err
			}
			if a.flags.demo {
				return a.demo(ctx, cfg)
			}
			return a.serve(ctx, cfg)
		},
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w\nworker --help lists the flags", config.FlagError(cmd.Flags(), err))
	})
	f := root.Flags()
	f.SortFlags = false
	f.BoolVar(&a.flags.demo, "demo", false, "Run on an embedded Redis and a temporary ledger, with about 1,000 invented tasks.")
	f.BoolVar(&a.flags.once, "once", false, "End the demo when its tasks are done; status 0 only if all have succeeded and the ledger is right.")
	f.BoolVar(&a.flags.json, "json", false, "Print the summary at the end as one line of JSON on standard output; see --log-format for the log.")
	f.BoolVar(&a.flags.embedded, "embedded", false, "Run on a Redis inside this process, which forgets everything at its end.")
	f.IntVar(&a.flags.port, "embedded-port", 0, "The `port` of the embedded Redis on 127.0.0.1; 0 is 6379, or a free one if that is taken.")
	f.DurationVar(&a.flags.work, "work", 0, "Let each task pretend to work for this long, at most 1h; 60ms in the demo unless given.")
	f.StringVar(&a.flags.config, "config", "", "The `file` of settings; $SIDING_CONFIG if not given, else config.yaml if it is there.")
	for _, s := range config.Settings() {
		if s.Flag == "" {
			continue
		}
		f.Var(&setting{Setting: s, given: &a.flags.settings}, s.Flag, s.Help)
		if s.Kind == config.Bool {
			f.Lookup(s.Flag).NoOptDefVal = "true"
		}
	}
	return root
}

// check refuses flags that do not go together.
func (f flags) check(cmd *cobra.Command) error {
	own := f.embedded || f.demo
	switch {
	case f.once && !f.demo:
		return errors.New("--once: want --demo with it")
	case cmd.Flags().Changed("embedded-port") && !own:
		return errors.New("--embedded-port: want --embedded or --demo with it")
	case f.port < 0 || f.port > 65535:
		return fmt.Errorf("--embedded-port: want 0 to 65535, have %d", f.port)
	case f.work < 0 || f.work > time.Hour:
		return fmt.Errorf("--work: want 0 to 1h, have %v", f.work)
	}
	for _, o := range f.settings {
		if own && strings.HasPrefix(o.Flag, "redis") {
			return fmt.Errorf("--%s: want another Redis or an embedded one, have both", o.Flag)
		}
		if f.demo && (o.Flag == "ledger" || o.Flag == "queue") {
			return fmt.Errorf("--%s: want none with --demo, which has its own", o.Flag)
		}
	}
	return nil
}

// settings loads the configuration.
func (a *app) settings() (config.Config, error) {
	if err := config.CheckEnv(a.environ); err != nil {
		return config.Config{}, err
	}
	return config.Load(a.settingsFile(), a.lookupEnv, a.flags.settings...)
}

// place returns where a setting was given, as errors name it.
func (a *app) place(key string) string {
	return config.Place(key, a.settingsFile(), a.lookupEnv, a.flags.settings...)
}

// settingsFile returns the path of the file of settings, empty for none.
func (a *app) settingsFile() string {
	path := a.flags.config
	if path == "" {
		path, _ = a.lookupEnv("SIDING_CONFIG")
	}
	if path == "" {
		// Any other error than its absence is told when it is read.
		if _, err := os.Stat(defaultConfig); !errors.Is(err, os.ErrNotExist) {
			path = defaultConfig
		}
	}
	return path
}

// checkExposure refuses a dashboard that asks others than this machine's users
// for nothing, also one that only shows: payloads are not for everybody. The rule
// is not among those of the settings, as other programs read the same file
// without the worker's environment, where the password may be.
func (a *app) checkExposure(h config.HTTP) error {
	if h.Address == "" || !h.Dashboard || h.Password != "" || h.PasswordFile != "" || dashboard.Loopback(h.Address) {
		return nil
	}
	return fmt.Errorf("%s: others can reach %s: want SIDING_HTTP_PASSWORD or http.password_file, or http.dashboard false, have neither",
		a.place("http.address"), h.Address)
}

// defaultConfig is read when no other file is named and it is there.
const defaultConfig = "config.yaml"

func (a *app) lookupEnv(name string) (string, bool) {
	for _, entry := range a.environ {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value, true
		}
	}
	return "", false
}

// logger returns the logger that the settings ask for.
func (a *app) logger(cfg config.Log) *slog.Logger {
	opts := &slog.HandlerOptions{Level: cfg.Level}
	if cfg.Format == "json" {
		return slog.New(slog.NewJSONHandler(a.stderr, opts))
	}
	return slog.New(slog.NewTextHandler(a.stderr, opts))
}

// A setting is a flag whose values go to the table of settings, in order.
type setting struct {
	config.Setting

	given *[]config.Override
}

// Set implements pflag.Value. What is wrong with a value is said once all are
// known.
func (s *setting) Set(value string) error {
	*s.given = append(*s.given, config.Override{Flag: s.Flag, Value: value})
	return nil
}

// String returns the default, for the help.
func (s *setting) String() string { return s.Default }

// Type returns the word that stands for the value in the help.
func (s *setting) Type() string {
	switch s.Kind {
	case config.Bool:
		return "bool"
	case config.List:
		return "address"
	case config.Numbers:
		return "name=number"
	case config.Text:
		if s.Key == "http.address" {
			return "host:port"
		}
	}
	return "value"
}
