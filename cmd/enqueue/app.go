package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/sidingq/siding/internal/config"
)

// The exit statuses of the program, as its help tells them.
const (
	exitOK      = 0
	exitFault   = 1
	exitUsage   = 2
	exitRefused = 3
)

// A statusError ends the program with an exit status. Any other error that
// reaches the top comes from reading the command line.
type statusError struct {
	status int
	err    error // nil when everything has been said
}

func (e *statusError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.status)
	}
	return e.err.Error()
}

func (e *statusError) Unwrap() error { return e.err }

func fault(err error) error { return &statusError{status: exitFault, err: err} }

func refused(err error) error { return &statusError{status: exitRefused, err: err} }

// An app is one run of the program with what it needs from its surroundings.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	environ        []string // as os.Environ returns it
	flags          commonFlags
}

// commonFlags are the flags of all commands.
type commonFlags struct {
	config string
	redis  string
	dryRun bool
	json   bool
	quiet  bool
}

// run runs the program and returns its exit status. When ctx ends, it finishes
// the batch in hand and stops.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, environ: os.Environ()}
	return a.run(ctx, args)
}

func (a *app) run(ctx context.Context, args []string) int {
	root := a.root()                          //nolint:contextcheck // cobra hands ctx to the commands
	root.SetArgs(append([]string{}, args...)) // nil would stand for those of the process
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	// A terminal that went away takes the message with it; the status remains.
	ended, ok := errors.AsType[*statusError](err)
	if !ok {
		_, _ = fmt.Fprintf(a.stderr, "enqueue: %v\nRun '%s --help' for usage.\n", err, cmd.CommandPath())
		return exitUsage
	}
	if ended.err != nil {
		_, _ = fmt.Fprintf(a.stderr, "enqueue: %v\n", ended.err)
	}
	return ended.status
}

// one wants one argument, called name.
func one(name, want string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch len(args) {
		case 0:
			return fmt.Errorf("%s: want %s, have nothing", name, want)
		case 1:
			return nil
		default:
			return fmt.Errorf("%s: want one, have %d", name, len(args))
		}
	}
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "enqueue",
		Short: "Enqueue tasks for Siding's workers",
		Long: `enqueue stores tasks in Redis for Siding's workers: one task, a stream of
tasks, or the tasks that an order file asks for.

Exit status: 0 all is well; 1 a fault, such as Redis that cannot be reached, or
an interrupt; 2 the command line or a setting is wrong; 3 a task or some lines
were refused (the others are enqueued).`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("want a command: task, stream or orders")
		},
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	f := root.PersistentFlags()
	f.StringVar(&a.flags.config, "config", "", "configuration `file`, of which redis and shards are used (default $SIDING_CONFIG, else config.yaml if it is there)")
	f.StringVar(&a.flags.redis, "redis", "", "`address` of Redis, host:port or redis[s]://[user@]host[:port][/db] (default from $SIDING_REDIS_ADDRS or the file, else 127.0.0.1:6379); a password goes into $SIDING_REDIS_PASSWORD")
	f.BoolVar(&a.flags.dryRun, "dry-run", false, "check everything, connect to nothing")
	f.BoolVar(&a.flags.json, "json", false, "print the result as one line of JSON")
	f.BoolVar(&a.flags.quiet, "quiet", false, "show no progress bar (there is none unless stderr is a terminal)")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return config.FlagError(cmd.Flags(), err) })
	root.AddCommand(a.taskCommand(), a.streamCommand(), a.ordersCommand())
	return root
}
