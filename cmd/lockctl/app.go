package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/cli"
	"github.com/sidingq/siding/internal/config"
	"github.com/sidingq/siding/internal/taskredis"
)

const exitTrouble = 3 // why or doctor has found that something is wrong

// statuses is the part of the help that lists the exit statuses.
const statuses = `Exit status: 0 all is well; 1 a fault, such as Redis that cannot be reached, a task
that is not there, or a lock that was not released; 2 the command line or a setting
is wrong; 3 why or doctor has found that something is wrong.`

// An inspector answers the questions of the program. It is an [inspect.Inspector].
type inspector interface {
	Held(ctx context.Context) (inspect.List, error)
	Show(ctx context.Context, resource string, from, count int) (inspect.Lock, []inspect.Waiter, error)
	Why(ctx context.Context, queue, id string) (inspect.Explanation, error)
	Orphans(ctx context.Context) ([]inspect.Orphan, error)
	Servers(ctx context.Context) ([]inspect.Server, error)
	Queues(ctx context.Context) ([]inspect.Queue, error)
	HeldLines(ctx context.Context) (lines []inspect.HeldLine, leftOut int, err error)
	Scan(ctx context.Context, progress func(scanned int)) ([]inspect.Lock, error)
}

// An app is one run of the program.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	environ        []string // as os.Environ returns it
	now            func() time.Time
	zone           *time.Location // of the times that people see
	// open connects to the Redis of the settings. The zone is that of the times in sentences. Errors are
	// those of [cli.Connect].
	open func(ctx context.Context, settings config.Config, zone *time.Location) (*connection, error)

	file  string            // of settings
	given []config.Override // on the command line
	json  bool
}

// A connection is what the program works on.
type connection struct {
	inspector

	rdb      redis.UniversalClient
	settings config.Config
	// attended reports whether one of the servers that have these queues looks after them.
	attended func(ctx context.Context, queues []string) (bool, error)
	// published returns the entries of the servers, with their terms.
	published func(ctx context.Context) ([]*taskredis.ServerInfo, error)
}

func newApp(stdin io.Reader, stdout, stderr io.Writer, environ []string) *app {
	return &app{
		stdin: stdin, stdout: stdout, stderr: stderr, environ: environ,
		now: time.Now, zone: time.Local, open: open,
	}
}

func open(ctx context.Context, settings config.Config, zone *time.Location) (*connection, error) {
	rdb, err := cli.Connect(ctx, settings, "lockctl", "")
	if err != nil {
		return nil, err
	}
	cfg := settings.Server(nil, nil)
	i, err := inspect.New(rdb, inspect.Config{Prefix: cfg.Lock.Prefix, Crashes: cfg.Recovery.Crashes, Zone: zone})
	if err != nil {
		return nil, cli.Fault(errors.Join(err, rdb.Close()))
	}
	return &connection{inspector: i, rdb: rdb, settings: settings, attended: func(ctx context.Context, queues []string) (bool, error) {
		return taskredis.Attended(ctx, rdb, queues)
	}, published: func(ctx context.Context) ([]*taskredis.ServerInfo, error) {
		return taskredis.Servers(ctx, rdb)
	}}, nil
}

// run runs the program and returns its exit status.
func (a *app) run(ctx context.Context, args []string) int {
	return cli.Run(ctx, a.root(), args, a.stdout, a.stderr) //nolint:contextcheck // cobra hands ctx to the commands
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "lockctl",
		Short: "Show, release and limit the locks of Siding's tasks",
		Long: `lockctl shows who holds which lock, who waits for it, and why a task does not run.
It takes a lock from its holder, limits or pauses a resource, sets lines going that a
failed task holds, runs, archives and deletes tasks, pauses queues, and looks for faults
of the whole installation.

It reads the settings of the workers, from flags, from the environment
(--lock-prefix is SIDING_LOCK_PREFIX) and from a file, in this order of precedence.
Only release, limit, run, archive, delete and queue change anything in Redis.`,
		Example: `  lockctl list --sort oldest
  lockctl why 77ab09
  lockctl doctor --config /etc/siding/config.yaml`,
		Args: cli.Subcommand,
		RunE: cli.Subcommand,
	}
	f := root.PersistentFlags()
	f.SortFlags = false
	f.BoolVar(&a.json, "json", false, "print JSON for scripts: one line, with times in UTC and durations in seconds")
	config.AddFileFlag(f, &a.file, "configuration `file` of the workers (default $SIDING_CONFIG, else config.yaml if it is there)")
	wanted := func(s config.Setting) bool {
		return strings.HasPrefix(s.Key, "redis.") || strings.HasPrefix(s.Key, "log.") || s.Key == "lock.prefix"
	}
	config.AddFlags(f, &a.given, wanted)
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp) // a task or a lock is no file
	_ = root.MarkPersistentFlagFilename("config", "yaml", "yml")                            // which there is
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return config.FlagError(cmd.Flags(), err) })
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		for _, s := range config.Settings() {
			if flag := f.Lookup(s.Flag); flag != nil && s.Flag != "redis" {
				flag.Hidden = cmd != root // the help of the program has them
			}
		}
		help(cmd, args)
	})
	root.AddGroup(&cobra.Group{ID: "locks", Title: "Commands:"})
	for _, cmd := range []*cobra.Command{
		a.listCommand(), a.showCommand(), a.whyCommand(), a.releaseCommand(), a.limitCommand(),
		a.tasksCommand(), a.runCommand(), a.archiveCommand(), a.deleteCommand(), a.queueCommand(), a.doctorCommand(),
	} {
		cmd.GroupID = "locks"
		root.AddCommand(cmd)
	}
	addStatuses(root)
	return root
}

// addStatuses adds the exit statuses to the help of a command, and of those below it.
func addStatuses(cmd *cobra.Command) {
	cmd.Long += "\n\n" + statuses
	for _, below := range cmd.Commands() {
		addStatuses(below)
	}
}

// connect reads the settings and connects to their Redis. The caller closes the connection.
func (a *app) connect(ctx context.Context) (*connection, error) {
	settings, err := config.Sources{File: a.file, Environ: a.environ, Flags: a.given}.Load()
	if err != nil {
		return nil, err
	}
	zone := a.zone
	if a.json {
		zone = time.UTC
	}
	c, err := a.open(ctx, settings, zone)
	if err != nil && ctx.Err() != nil {
		return nil, fault(ctx, err)
	}
	return c, err
}

// with does something on a connection.
func (a *app) with(ctx context.Context, do func(context.Context, *connection) error) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer c.rdb.Close()
	return do(ctx, c)
}

// failed returns the error of a question that Redis did not answer.
func (c *connection) failed(ctx context.Context, err error) error {
	return fault(ctx, c.settings.Redis.Failed("", err))
}

// fault is the end of a command by err, or by a signal.
func fault(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	return cli.Fault(err)
}

// print prints a value as one line of JSON if that is asked for, else the text. A reader that has seen
// enough, such as head, ends the program without a word.
func (a *app) print(value any, text func() string) error {
	var err error
	if a.json {
		encoder := json.NewEncoder(a.stdout)
		encoder.SetEscapeHTML(false)
		err = encoder.Encode(value)
	} else {
		_, err = io.WriteString(a.stdout, text())
	}
	switch {
	case errors.Is(err, syscall.EPIPE):
		return cli.Exit(cli.StatusOK, nil)
	case err != nil:
		return cli.Fault(err)
	}
	return nil
}

// printTable prints a value, for people as a table.
func (a *app) printTable(value any, t *table) error {
	return a.print(value, t.text)
}

// say writes to standard error. A terminal that has gone is no fault.
func (a *app) say(format string, args ...any) {
	_, _ = fmt.Fprintf(a.stderr, format, args...)
}
