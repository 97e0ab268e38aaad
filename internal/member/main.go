// Package member is what the programs of a fleet of workers have in common: settings, flags,
// dashboard, probes and draining. The package knows no tasks.
package member

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"

	"github.com/sidingq/siding/internal/cli"
)

// A Program is a worker with its command line.
type Program struct {
	// Name is what the program calls itself in its help and its errors.
	Name string
	// Environ is the environment, in the form of os.Environ.
	Environ []string
	// Ledger adds the flag --ledger of the setting ledger.dsn, which is the demo shop's.
	Ledger bool
	// Command adds flags to the command, and a PreRunE that checks them. May be nil.
	Command func(*cobra.Command)
	// Serve opens what the tasks need, calls [Member.Run], and closes it. An error of
	// Serve is a fault, unless it is from [Member.Refuse].
	Serve func(context.Context, *Member) error
	// own says that the program is this process: its log is slog's default, which handlers write to.
	own bool
	// Cleanup removes temporary files when the process ends although tasks still run. Everything
	// else may still run beside Cleanup. May be nil.
	Cleanup func()
}

// Main runs the program as this process, until SIGTERM or SIGINT, and never returns.
func (p Program) Main() {
	ctx := cli.Context(func(again os.Signal) {
		p.end(os.Stderr, fmt.Sprintf("received %v while draining: ending at once", again))
	})
	p.own = true
	logging.Disable() // the errors say what the Redis client would write to standard error
	os.Exit(p.Run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// Run runs the program with the arguments until it has drained after the end of ctx. The result is
// the exit status. After shutdown.hard_deadline Run ends the process.
func (p Program) Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c := &command{Program: p, stderr: stderr}
	root := c.root()                          //nolint:contextcheck // cobra hands ctx to the command
	root.SetArgs(append([]string{}, args...)) // nil would stand for those of the process
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return cli.StatusOK
	}
	for line := range strings.Lines(err.Error()) { // one for each mistake
		say(stderr, "%s: %s\n", p.Name, strings.TrimSuffix(line, "\n"))
	}
	if _, refused := errors.AsType[refusal](err); c.serving && !refused {
		return cli.StatusFault
	}
	return cli.StatusUsage
}

// end ends the process while tasks still run, also if nobody reads its standard error, or its disk hangs.
func (p Program) end(stderr io.Writer, why string) {
	time.AfterFunc(time.Second, func() { os.Exit(cli.StatusFault) })
	say(stderr, "%s: %s\n", p.Name, why)
	if p.Cleanup != nil {
		p.Cleanup()
	}
	os.Exit(cli.StatusFault)
}

// say writes to standard error. A terminal that has gone is no reason to stop working.
func say(stderr io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(stderr, format, args...)
}
