package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/sidingq/siding/internal/member"
	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/tasks"
	"github.com/sidingq/siding/tasks/ledger"
)

// An app is one run of the program.
type app struct {
	stdout, stderr io.Writer
	flags          flags
	temporary      atomic.Pointer[string] // a folder that the end removes, nil for none
}

// flags are those of this program alone.
type flags struct {
	work time.Duration
	demo bool
	once bool
	json bool
}

func (a *app) program(environ []string) member.Program {
	return member.Program{
		Name:    "worker",
		Environ: environ,
		Ledger:  true,
		Command: a.command,
		Serve:   a.serve,
		Cleanup: func() { _ = a.removeTemporary() }, // the process ends all the same
	}
}

// command adds the program's own flags.
func (a *app) command(cmd *cobra.Command) {
	cmd.Example = `  worker --demo                     watch tasks compete for orders, with nothing set up
  worker --demo --once --json       the same as a check
  worker --redis redis-1:6379 --queue critical=6 --queue default=3`
	cmd.PreRunE = a.check
	f := cmd.Flags()
	f.BoolVar(&a.flags.demo, "demo", false, "Run on an embedded Redis and a temporary ledger, with about 1,000 invented tasks.")
	f.BoolVar(&a.flags.once, "once", false, "End the demo when its tasks are done; status 0 only if all have succeeded and the ledger is right.")
	f.BoolVar(&a.flags.json, "json", false, "Print the summary at the end as one line of JSON on standard output; see --log-format for the log.")
	f.DurationVar(&a.flags.work, "work", 0, "Let each task pretend to work for this long, at most 1h; 60ms in the demo unless given.")
}

// check refuses flags that do not go together.
func (a *app) check(cmd *cobra.Command, _ []string) error {
	given := cmd.Flags().Changed
	switch {
	case a.flags.once && !a.flags.demo:
		return errors.New("--once: want --demo with it")
	case given("embedded-port") && !given("embedded") && !a.flags.demo:
		return errors.New("--embedded-port: want --embedded or --demo with it")
	case a.flags.work < 0 || a.flags.work > time.Hour:
		return fmt.Errorf("--work: want 0 to 1h, have %v", a.flags.work)
	case !a.flags.demo:
		return nil
	}
	if !given("work") {
		a.flags.work = demoWork
	}
	for _, name := range []string{"ledger", "queue"} {
		if given(name) {
			return fmt.Errorf("--%s: want none with --demo, which has its own", name)
		}
	}
	if !given("log-level") { // the progress says enough
		_ = cmd.Flags().Set("log-level", "warn") // the table of settings checks the value
	}
	return cmd.Flags().Set("embedded", "true")
}

// serve runs a worker on the ledger of the settings, or the demo.
func (a *app) serve(ctx context.Context, m *member.Member) error {
	if a.flags.demo {
		return a.demo(ctx, m)
	}
	l, err := ledger.Open(string(m.Config.LedgerDSN))
	if wrong, ok := errors.AsType[ledger.DSNError](err); ok {
		return m.Refuse("ledger.dsn", string(wrong))
	}
	if err != nil {
		return err
	}
	err = a.work(ctx, m, l, nil)
	if err == nil && a.flags.json {
		err = a.printJSON(m.Stats()) // of this worker alone: others may have run the same tasks
	}
	return errors.Join(err, l.Close())
}

// work runs the shop's tasks on the ledger, and beside, if it is not nil.
func (a *app) work(ctx context.Context, m *member.Member, l *ledger.Ledger, beside func(context.Context, string) error) error {
	m.Server.Available = l.Writable
	m.Prepare = func(ctx context.Context) error {
		err := l.CreateTables(ctx)
		if err == nil {
			m.Server.Logger.InfoContext(ctx, "ledger open", "ledger", l.Name())
		}
		return err
	}
	return m.Run(ctx, func(s *queue.Server) { tasks.Register(s, l, a.flags.work) }, beside)
}

// removeTemporary removes the temporary folder, if there is one.
func (a *app) removeTemporary() error {
	if dir := a.temporary.Swap(nil); dir != nil {
		return os.RemoveAll(*dir)
	}
	return nil
}

// say writes to standard error. A terminal that has gone is no reason to stop working.
func (a *app) say(format string, args ...any) {
	_, _ = fmt.Fprintf(a.stderr, format, args...)
}
