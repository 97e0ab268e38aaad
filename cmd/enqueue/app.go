package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sidingq/siding/internal/cli"
	"github.com/sidingq/siding/internal/config"
)

// exitRefused is the exit status of a program whose task or some of whose lines were refused.
const exitRefused = 3

func refused(err error) error { return cli.Exit(exitRefused, err) }

// An app is one run of the program.
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

// run runs the program and returns its exit status. When ctx ends, the program
// finishes the current batch and stops.
func (a *app) run(ctx context.Context, args []string) int {
	return cli.Run(ctx, a.root(), args, a.stdout, a.stderr) //nolint:contextcheck // cobra hands ctx to the commands
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
		Args:              cli.Subcommand,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return checkEmpty(cmd.Flags()) },
		RunE:              cli.Subcommand,
	}
	f := root.PersistentFlags()
	config.AddFileFlag(f, &a.flags.config, "configuration `file`; the program uses redis and shards from it (default $SIDING_CONFIG, else config.yaml if it is there)")
	f.StringVar(&a.flags.redis, "redis", "", "`address` of Redis, host:port (default from $SIDING_REDIS_ADDRS or the file, else 127.0.0.1:6379); a password goes into $SIDING_REDIS_PASSWORD")
	f.BoolVar(&a.flags.dryRun, "dry-run", false, "check everything, connect to nothing")
	f.BoolVar(&a.flags.json, "json", false, "print the result as one line of JSON, with the number and reason of up to 10,000 refused lines")
	f.BoolVar(&a.flags.quiet, "quiet", false, "show no progress (there is none unless stderr is a terminal)")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return config.FlagError(cmd.Flags(), err) })
	root.AddCommand(a.taskCommand(), a.streamCommand(), a.ordersCommand())
	return root
}

// checkEmpty refuses a flag with an empty text, as of a shell variable that is not set: the task would go elsewhere, or
// lack what it was to have, without a word. A task with an empty payload is refused as such.
func checkEmpty(given *pflag.FlagSet) (err error) {
	given.Visit(func(f *pflag.Flag) {
		texts := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			texts = list.GetSlice()
		} else if f.Value.Type() != "string" {
			return
		}
		if err == nil && slices.Contains(texts, "") && f.Name != "payload" {
			err = fmt.Errorf("--%s: want a text, have nothing", f.Name)
		}
	})
	return err
}

// settings returns where Redis is and which queues have shards. The flag, the environment, the file
// or the default says so, in this order.
func (a *app) settings() (config.Config, error) {
	var overrides []config.Override
	if a.flags.redis != "" {
		overrides = append(overrides, config.Override{Flag: "redis", Value: a.flags.redis})
	}
	return config.Sources{File: a.flags.config, Environ: a.environ, Flags: overrides}.Load()
}
