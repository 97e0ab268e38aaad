package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/cli"
	"github.com/sidingq/siding/queue"
)

func (a *app) linesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "lines",
		Short: "List the lines that are held by a task which has failed",
		Long: `List the lines of resources that wait for a task which has failed, as its policy says:
on_failure is hold or stop. Those that have stopped come first: their task is archived,
and they wait for retry or skip. The others go on when their task has run again.

  QUEUE    asynq's queue of the task, and of those behind it
  GOES ON  when the task runs again; "stopped" if it does not by itself
  WAITING  how many tasks of the queue wait behind it

` + statuses,
		Example: `  lockctl lines
  lockctl lines --json`,
		Args: cli.None,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.lines(cmd.Context()) },
	}
}

func (a *app) lines(ctx context.Context) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	held, leftOut, err := c.HeldLines(ctx)
	if err != nil {
		return c.failed(ctx, err)
	}
	if leftOut > 0 {
		a.say("lockctl: %s left out: a queue has more than one call reads\n", count(leftOut, "line"))
	}
	all := make([]inspect.HeldLine, 0, len(held)) // never nil, for JSON
	for _, stopped := range []bool{true, false} {
		for _, l := range held {
			if l.Stopped == stopped {
				all = append(all, l)
			}
		}
	}
	columns, _ := a.size(a.stdout)
	return a.print(all, func() string { return a.lineTable(all).text(columns) })
}

// lineTable shows held lines for people.
func (a *app) lineTable(lines []inspect.HeldLine) *table {
	t := &table{columns: []column{
		{title: "RESOURCE", cut: true},
		{title: "TASK", cut: true},
		{title: "QUEUE", cut: true},
		{title: "FAILED", right: true},
		{title: "GOES ON", right: true},
		{title: "WAITING", right: true},
		{title: "ERROR", cut: true},
	}}
	for _, l := range lines {
		failed := "-"
		if !l.Since.IsZero() {
			failed = span(a.now().Sub(l.Since)) + " ago"
		}
		t.add(l.Resource, taskText(&l.Task), l.Task.Queue, failed, a.goesOn(l), fmt.Sprint(l.Waiting), l.Error)
	}
	return t
}

// goesOn says when a held line goes on.
func (a *app) goesOn(l inspect.HeldLine) string {
	switch left := l.GoesOn.Sub(a.now()); {
	case l.Stopped:
		return "stopped"
	case left <= 0:
		return "now"
	default:
		return "in " + span(left)
	}
}

// A settling says which task is to set its line going.
type settling struct {
	queue, id, reason, by string
	yes                   bool
}

// A settled is what became of it.
type settled struct {
	Task     inspect.Task `json:"task"`
	Resource string       `json:"resource"`
	Outcome  string       `json:"outcome"` // retried or skipped; pending, archived or deleted
	Waiting  int          `json:"waiting"` // behind it in a line that it has set going
	By       string       `json:"by,omitempty"`
	Reason   string       `json:"reason,omitempty"`
}

func (a *app) retryCommand() *cobra.Command {
	var s settling
	cmd := &cobra.Command{
		Use:   "retry TASK",
		Short: "Have a task run now that holds its line",
		Long: `Have a task run now that has failed and holds its line, or has stopped it. It runs as
soon as its resource is free and a server of its queue has a slot, before those behind
it. If it succeeds, the line goes on. An archived task has no retries left: if it fails
again, the line stops again.

` + statuses,
		Example: `  lockctl retry 77ab09
  lockctl retry 77ab09 --queue critical --json`,
		Args:              cli.One,
		ValidArgsFunction: a.completeHolding,
		RunE: func(cmd *cobra.Command, args []string) error {
			s.id = args[0]
			return a.settle(cmd.Context(), s, "retried", func(ctx context.Context, c *connection, t inspect.Task) error {
				return queue.RetryHeld(ctx, c.rdb, t.Queue, t.ID)
			})
		},
	}
	a.addQueueFlag(cmd, &s.queue)
	s.yes = true // it would run by itself, or has to run at some time
	return cmd
}

func (a *app) skipCommand() *cobra.Command {
	var s settling
	cmd := &cobra.Command{
		Use:   "skip TASK --reason TEXT",
		Short: "Give up a task that holds its line, after a question",
		Long: `Give up a task that has failed and holds its line, or has stopped it, after a question.
The task is archived, or stays so, and the line goes on with the next one. The reason
and your name become the task's last error, before its own.

` + statuses,
		Example: `  lockctl skip 77ab09 --reason 'the order was canceled'
  lockctl skip 77ab09 --reason 'drill' --by alice --yes`,
		Args:              cli.One,
		ValidArgsFunction: a.completeHolding,
		RunE: func(cmd *cobra.Command, args []string) error {
			s.id = args[0]
			if err := checkTexts(s.reason, s.by); err != nil {
				return err
			}
			return a.settle(cmd.Context(), s, "skipped", func(ctx context.Context, c *connection, t inspect.Task) error {
				return queue.SkipHeld(ctx, c.rdb, t.Queue, t.ID, s.by, s.reason)
			})
		},
	}
	a.addQueueFlag(cmd, &s.queue)
	a.addReasonFlags(cmd, &s.reason, &s.by, &s.yes, "who skips the task")
	return cmd
}

// settle has a task set its line going.
func (a *app) settle(ctx context.Context, s settling, outcome string, do func(context.Context, *connection, inspect.Task) error) error {
	c, e, err := a.openTask(ctx, s)
	if err != nil {
		return err
	}
	defer c.Close()
	switch {
	case e.Line == nil:
		return cli.Fault(fmt.Errorf("nothing has changed: the task %q holds no line: `lockctl why %s` says what it does", s.id, shellArg(s.id)))
	case e.Line.Task.ID != s.id:
		return cli.Fault(fmt.Errorf("nothing has changed: the line of %s is held by the task %q, not by %q", plain(e.Resource), e.Line.Task.ID, s.id))
	}
	if !s.yes {
		if err := a.ask(ctx, s.id, a.explanation(e), "Give this task up, and have the line go on?"); err != nil {
			return err
		}
	}
	// An interrupt must not hide whether it was done.
	err = do(context.WithoutCancel(ctx), c, e.Line.Task)
	switch {
	case errors.Is(err, queue.ErrHoldsNoLine):
		return cli.Fault(fmt.Errorf("nothing has changed: %w", err))
	case err != nil:
		return c.failed(ctx, err)
	}
	done := settled{Task: e.Line.Task, Resource: e.Line.Resource, Outcome: outcome, Waiting: e.Line.Waiting, By: s.by, Reason: s.reason}
	c.settings.Log.Logger(a.stderr).WarnContext(ctx, "an operator has set a line going",
		"task_id", done.Task.ID, "queue", done.Task.Queue, "resource", done.Resource, "outcome", outcome, "by", cmp.Or(s.by, operator()), "reason", s.reason)
	return a.print(done, done.text)
}

// text is for people.
func (s settled) text() string {
	if s.Outcome == "retried" {
		return fmt.Sprintf("%s runs again as soon as %s is free. %s behind it.\n", plain(s.Task.ID), plain(s.Resource), countOf(s.Waiting, "task waits", "tasks wait"))
	}
	return fmt.Sprintf("%s is archived, by %s: %s. The line of %s goes on; %s.\n", plain(s.Task.ID), plain(s.By), plain(s.Reason), plain(s.Resource), count(s.Waiting, "task")+" waited")
}

func (a *app) addQueueFlag(cmd *cobra.Command, queue *string) {
	cmd.Flags().StringVar(queue, "queue", "", "`name` of the task's queue, or of its shard (default any)")
	_ = cmd.RegisterFlagCompletionFunc("queue", a.completeQueues) // there is such a flag
}

// completeHolding suggests the tasks that hold a line.
func (a *app) completeHolding(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.complete(cmd, func(ctx context.Context, c *connection) (found []string, err error) {
		lines, _, err := c.HeldLines(ctx)
		for _, l := range lines {
			found = suggest(found, begin, l.Task.ID, fmt.Sprintf("%s, %s", l.Resource, a.goesOn(l)))
		}
		return found, err
	})
}
