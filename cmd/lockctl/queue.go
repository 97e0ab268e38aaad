package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/hibiken/asynq"
	"github.com/spf13/cobra"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/cli"
)

// A queued is what became of a queue.
type queued struct {
	Queue   string `json:"queue"`
	Outcome string `json:"outcome"` // paused or resumed
	Tasks   int    `json:"tasks"`   // unfinished
	By      string `json:"by"`
	Reason  string `json:"reason,omitempty"`
}

func (a *app) queueCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "queue",
		Short: "Pause or resume a queue",
		Long:  `Pause or resume a queue of asynq. A shard of a queue is a queue here.`,
		Example: `  lockctl queue pause critical --reason 'the bank is down'
  lockctl queue resume critical`,
		Args: cli.Subcommand,
		RunE: cli.Subcommand,
	}
	cmd.AddCommand(a.queuePauseCommand(), a.queueResumeCommand())
	return cmd
}

func (a *app) queuePauseCommand() *cobra.Command {
	var d deed
	cmd := &cobra.Command{
		Use:   "pause QUEUE --reason TEXT",
		Short: "Have no task of a queue start, after a question",
		Long: `Have no task of a queue start until the queue is resumed, after a question. Tasks that
run are not disturbed. Those that wait for a lock keep their places, and let tasks of
other queues go before them. The log of lockctl has the reason; Redis does not keep it.`,
		Example: `  lockctl queue pause critical --reason 'the bank is down'`,
		Args:    cli.One,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := d.check(); err != nil {
				return err
			}
			return a.setQueue(cmd.Context(), args[0], d, true)
		},
	}
	d.addAskFlags(cmd, "who pauses the queue")
	return cmd
}

func (a *app) queueResumeCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "resume QUEUE",
		Short:   "Have tasks of a paused queue start again",
		Long:    `Have tasks of a paused queue start again. Servers notice it within a second.`,
		Example: `  lockctl queue resume critical`,
		Args:    cli.One,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.setQueue(cmd.Context(), args[0], deed{by: operator(), yes: true}, false)
		},
	}
}

// setQueue pauses or resumes a queue.
func (a *app) setQueue(ctx context.Context, name string, d deed, pause bool) error {
	return a.with(ctx, func(ctx context.Context, c *connection) error {
		before, known, err := c.queue(ctx, name)
		switch {
		case err != nil:
			return c.failed(ctx, err)
		case !known:
			return unchanged("there is no queue %q: `lockctl doctor` lists all", name)
		case before.Paused == pause:
			return unchanged("the queue %q is %s", name, map[bool]string{true: "paused already", false: "not paused"}[pause])
		}
		tasks := tasksOf(before)
		about := fmt.Sprintf("queue %s: %s, %d of them run now\n", cli.Plain(name), count(tasks, "unfinished task"), before.Active)
		if err := a.ask(ctx, d, name, about, "Have no task of this queue start?"); err != nil {
			return err
		}
		inspector := asynq.NewInspectorFromRedisClient(c.rdb)
		outcome, set, hint := "resumed", inspector.UnpauseQueue, ""
		if pause {
			outcome, set, hint = "paused", inspector.PauseQueue, fmt.Sprintf("`lockctl queue resume %s` resumes it.\n", inspect.ShellArg(cli.Plain(name)))
		}
		if err := set(name); err != nil {
			// asynq refuses the second copy of a call, which go-redis sends if the answer to the first is lost.
			if is, known, lookErr := c.queue(ctx, name); lookErr != nil || !known || is.Paused != pause {
				return c.failed(ctx, err)
			}
		}
		a.recorder(c).WarnContext(ctx, "an operator has paused or resumed a queue", d.record("queue", name, "outcome", outcome)...)
		return a.print(queued{Queue: name, Outcome: outcome, Tasks: tasks, By: d.by, Reason: d.reason}, func() string {
			return fmt.Sprintf("%s: %s by %s; %s.\n%s", cli.Plain(name), outcome, cli.Plain(d.by), count(tasks, "unfinished task"), hint)
		})
	})
}

// queue looks at a queue. known says whether there is one of this name.
func (c *connection) queue(ctx context.Context, name string) (_ inspect.Queue, known bool, _ error) {
	all, err := c.Queues(ctx)
	if n := slices.IndexFunc(all, func(one inspect.Queue) bool { return one.Name == name }); n >= 0 {
		return all[n], true, err
	}
	return inspect.Queue{}, false, err
}
