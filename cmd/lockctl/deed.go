package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/user"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/cli"
	"github.com/sidingq/siding/internal/store"
)

// A deed says why an operator changes something, and who it is. The one of a command that asks before may say yes beforehand.
type deed struct {
	reason, by string
	yes        bool
}

// addFlags adds the flags of a command that wants a reason.
func (d *deed) addFlags(cmd *cobra.Command, who string) {
	cmd.Flags().StringVar(&d.reason, "reason", "", "why, for those who look later; required")
	cmd.Flags().StringVar(&d.by, "by", operator(), who)
	_ = cmd.MarkFlagRequired("reason") // there is such a flag
}

// addAskFlags adds the flags of one that asks, too.
func (d *deed) addAskFlags(cmd *cobra.Command, who string) {
	d.addFlags(cmd, who)
	cmd.Flags().BoolVar(&d.yes, "yes", false, "do not ask")
}

// check checks the texts, which Redis keeps.
func (d *deed) check() error {
	return cmp.Or(store.CheckText("--reason", d.reason, 1000), store.CheckText("--by", d.by, 200))
}

// record returns what the log says of a deed: about what, by whom and why.
func (d deed) record(about ...any) []any {
	about = append(about, "by", d.by)
	if d.reason != "" {
		about = append(about, "reason", d.reason)
	}
	return about
}

// recorder returns the log of what operators change. The level in the settings does not count: some of these reasons are nowhere else.
func (a *app) recorder(c *connection) *slog.Logger {
	log := c.settings.Log
	log.Level = slog.LevelWarn
	return log.Logger(a.stderr)
}

// operator names who runs the program.
func operator() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = cmp.Or(u.Username, u.Uid)
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}

// ask shows what something is about, and asks whether to do it, unless the operator has said yes. Its error is that of an answer
// other than yes.
func (a *app) ask(ctx context.Context, d deed, name, about, question string) error {
	if d.yes {
		return nil
	}
	a.say("%s\n%s Type yes: ", about, question)
	answers := make(chan string, 1)
	go func() { // waits for the next input, or the end of the process
		line, err := bufio.NewReader(a.stdin).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			line = ""
		}
		answers <- strings.TrimSpace(line)
	}()
	select {
	case answer := <-answers:
		if answer == "yes" || answer == "y" {
			return nil
		}
		return cli.Fault(fmt.Errorf("%s: the answer was %q: nothing has changed", name, answer))
	case <-ctx.Done():
		a.say("\n")
		return fault(ctx, nil)
	}
}

// An errand says what to do to which task.
type errand struct {
	deed

	queue, id string
}

// errand makes a command that does something to one task. who is of its flag --by; a command without wants no reason, and asks
// nothing.
func (a *app) errand(cmd *cobra.Command, who string, do func(context.Context, *connection, errand) error) *cobra.Command {
	var e errand
	cmd.Args = cli.One
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if who != "" {
			if err := e.check(); err != nil {
				return err
			}
		}
		if e.id = args[0]; e.id == "" {
			return errors.New("want the id of a task, have nothing")
		}
		if e.queue == "" && cmd.Flags().Changed("queue") { // as of a shell variable that is not set: the task of another queue is not meant
			return errors.New("--queue: want a text, have nothing")
		}
		return a.with(cmd.Context(), func(ctx context.Context, c *connection) error { return do(ctx, c, e) })
	}
	cmd.Flags().StringVar(&e.queue, "queue", "", "`name` of the task's queue, or of its shard (default any)")
	if who != "" {
		e.addAskFlags(cmd, who)
	} else {
		e.by, e.yes = operator(), true
	}
	return cmd
}

// explain explains the task of an errand.
func (a *app) explain(ctx context.Context, c *connection, of errand) (inspect.Explanation, error) {
	e, err := c.Why(ctx, of.queue, of.id)
	switch {
	case errors.Is(err, inspect.ErrUnknownTask):
		err = cli.Fault(a.unknownTask(ctx, c, of.queue, of.id))
	case err != nil:
		err = c.failed(ctx, err)
	}
	return e, err
}

// theOne is [app.explain] for one that changes something: the error also says that several tasks could be meant.
func (a *app) theOne(ctx context.Context, c *connection, of errand) (inspect.Explanation, error) {
	e, err := a.explain(ctx, c, of)
	if err == nil && len(e.AlsoIn) > 0 && of.queue == "" {
		err = unchanged("several queues have a task %q: say by --queue which one is meant", of.id)
	}
	return e, err
}

// unchanged is the end of a command that has changed nothing.
func unchanged(why string, args ...any) error {
	return cli.Fault(fmt.Errorf("nothing has changed: "+why, args...))
}
