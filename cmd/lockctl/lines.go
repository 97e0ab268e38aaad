package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/cli"
)

func (a *app) linesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "lines",
		Short: "List the lines that are held by a task which has failed",
		Long: `List the lines of resources that wait for a task which has failed, as its policy says:
on_failure is hold or stop. Those that have stopped come first: their task is archived,
and they wait for run or archive. The others go on when their task has run again.

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
	t := newTable(left("RESOURCE"), left("TASK"), left("QUEUE"), right("FAILED"), right("GOES ON"), right("WAITING"), left("ERROR"))
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
