package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
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
  WAITING  how many tasks of the queue wait behind it`,
		Example: `  lockctl lines
  lockctl lines --json`,
		Args: cli.None,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.with(cmd.Context(), a.lines) },
	}
}

func (a *app) lines(ctx context.Context, c *connection) error {
	held, leftOut, err := c.HeldLines(ctx)
	if err != nil {
		return c.failed(ctx, err)
	}
	if leftOut > 0 {
		a.say("lockctl: %s left out: a queue has more than one call reads\n", count(leftOut, "line"))
	}
	all := append([]inspect.HeldLine{}, held...) // never nil, for JSON
	return a.printTable(all, a.lineTable(all))
}

// lineTable shows held lines for people.
func (a *app) lineTable(lines []inspect.HeldLine) *table {
	t := newTable(cut("RESOURCE"), cut("TASK"), cut("QUEUE"), right("FAILED"), right("GOES ON"), right("WAITING"), cut("ERROR"))
	for _, l := range lines {
		t.add(l.Resource, taskText(&l.Task), l.Task.Queue, a.ago(l.Since), a.goesOn(l), fmt.Sprint(l.Waiting), l.Error)
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
		return "in " + inspect.Duration(left).String()
	}
}

// A settled is what became of a task.
type settled struct {
	Task     inspect.Task `json:"task"`
	Resource string       `json:"resource"`
	Outcome  string       `json:"outcome"` // retried or skipped; pending, archived or deleted
	Waiting  int          `json:"waiting"` // behind it in a line that it has set going
	By       string       `json:"by"`
	Reason   string       `json:"reason,omitempty"`
}

func (a *app) retryCommand() *cobra.Command {
	// It asks nothing: the task would run by itself, or has to run at some time.
	return a.errand(&cobra.Command{
		Use:   "retry TASK",
		Short: "Have a task run now that holds its line",
		Long: `Have a task run now that has failed and holds its line, or has stopped it. It runs as
soon as its resource is free and a server of its queue has a slot, before those behind
it. If it succeeds, the line goes on. An archived task has no retries left: if it fails
again, the line stops again.`,
		Example: `  lockctl retry 77ab09
  lockctl retry 77ab09 --queue critical --json`,
	}, "", func(ctx context.Context, c *connection, of errand) error {
		return a.settle(ctx, c, of, "retried", queue.RetryHeld)
	})
}

func (a *app) skipCommand() *cobra.Command {
	return a.errand(&cobra.Command{
		Use:   "skip TASK --reason TEXT",
		Short: "Give up a task that holds its line, after a question",
		Long: `Give up a task that has failed and holds its line, or has stopped it, after a question.
The task is archived, or stays so, and the line goes on with the next one. The reason
and your name become the task's last error, before its own.`,
		Example: `  lockctl skip 77ab09 --reason 'the order was canceled'
  lockctl skip 77ab09 --reason 'drill' --by alice --yes`,
	}, "who skips the task", func(ctx context.Context, c *connection, of errand) error {
		return a.settle(ctx, c, of, "skipped", func(ctx context.Context, rdb redis.UniversalClient, queueName, id string) error {
			return queue.SkipHeld(ctx, rdb, queueName, id, of.by, of.reason)
		})
	})
}

// A setGoing sets a line going. It is [queue.RetryHeld], or like it.
type setGoing func(ctx context.Context, rdb redis.UniversalClient, queue, id string) error

// settle has a task set its line going.
func (a *app) settle(ctx context.Context, c *connection, of errand, outcome string, do setGoing) error {
	e, err := a.theOne(ctx, c, of)
	switch {
	case err != nil:
		return err
	case e.Line == nil:
		return unchanged("the task %q holds no line: `lockctl why %s` says what it does", of.id, inspect.ShellArg(of.id))
	case e.Line.Task.ID != of.id:
		return unchanged("the line of %s is held by the task %q, not by %q", cli.Plain(e.Resource), e.Line.Task.ID, of.id)
	}
	if err := a.ask(ctx, of.deed, of.id, a.explanation(e), "Give this task up, and have the line go on?"); err != nil {
		return err
	}
	// An interrupt must not hide whether it was done.
	err = do(context.WithoutCancel(ctx), c.rdb, e.Line.Task.Queue, of.id)
	switch {
	case errors.Is(err, queue.ErrHoldsNoLine):
		return unchanged("%w", err)
	case err != nil:
		return c.failed(ctx, err)
	}
	done := settled{Task: e.Line.Task, Resource: e.Line.Resource, Outcome: outcome, Waiting: e.Line.Waiting, By: of.by, Reason: of.reason}
	a.record(ctx, c, of.deed, "an operator has set a line going", done.about()...)
	return a.print(done, done.text)
}

// about is for the log.
func (s settled) about() []any {
	return []any{"task_id", s.Task.ID, "queue", s.Task.Queue, "resource", s.Resource, "outcome", s.Outcome}
}

// text is for people.
func (s settled) text() string {
	switch s.Outcome {
	case "retried":
		return fmt.Sprintf("%s runs again as soon as %s is free. %s behind it.\n", cli.Plain(s.Task.ID), cli.Plain(s.Resource), countOf(s.Waiting, "task waits", "tasks wait"))
	case "skipped":
		return fmt.Sprintf("%s is archived, by %s: %s. The line of %s goes on; %s waited.\n",
			cli.Plain(s.Task.ID), cli.Plain(s.By), cli.Plain(s.Reason), cli.Plain(s.Resource), count(s.Waiting, "task"))
	}
	why := ""
	if s.Reason != "" {
		why = ": " + cli.Plain(s.Reason)
	}
	return fmt.Sprintf("%s is %s, by %s%s.\n", cli.Plain(s.Task.ID), s.Outcome, cli.Plain(s.By), why)
}
