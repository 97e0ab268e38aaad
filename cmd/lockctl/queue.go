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

// A queueing says which queue to pause or to resume.
type queueing struct {
	name, reason, by string
	yes              bool
}

// A queued is what became of it.
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
		Long: `Pause or resume a queue of asynq. A shard of a queue is a queue here.

` + statuses,
		Example: `  lockctl queue pause critical --reason 'the bank is down'
  lockctl queue resume critical`,
		Args: cli.Subcommand,
		RunE: cli.Subcommand,
	}
	cmd.AddCommand(a.queuePauseCommand(), a.queueResumeCommand())
	return cmd
}

func (a *app) queuePauseCommand() *cobra.Command {
	var q queueing
	cmd := &cobra.Command{
		Use:   "pause QUEUE --reason TEXT",
		Short: "Have no task of a queue start, after a question",
		Long: `Have no task of a queue start until the queue is resumed, after a question. Tasks that
run are not disturbed. Those that wait for a lock keep their places, and let tasks of
other queues go before them. The log of lockctl has the reason; Redis does not keep it.

` + statuses,
		Example:           `  lockctl queue pause critical --reason 'the bank is down'`,
		Args:              cli.One,
		ValidArgsFunction: a.completeQueueArgument,
		RunE: func(cmd *cobra.Command, args []string) error {
			q.name = args[0]
			if err := checkTexts(q.reason, q.by); err != nil {
				return err
			}
			return a.setQueue(cmd.Context(), q, true)
		},
	}
	a.addReasonFlags(cmd, &q.reason, &q.by, &q.yes, "who pauses the queue")
	return cmd
}

func (a *app) queueResumeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "resume QUEUE",
		Short: "Have tasks of a paused queue start again",
		Long: `Have tasks of a paused queue start again. Servers notice it within a second.

` + statuses,
		Example:           `  lockctl queue resume critical`,
		Args:              cli.One,
		ValidArgsFunction: a.completeQueueArgument,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.setQueue(cmd.Context(), queueing{name: args[0], by: operator(), yes: true}, false)
		},
	}
}

// completeQueueArgument is [app.completeQueues] for a command with one argument.
func (a *app) completeQueueArgument(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completeQueues(cmd, args, begin)
}

// addReasonFlags adds the flags of a command that asks before it changes something.
func (a *app) addReasonFlags(cmd *cobra.Command, reason, by *string, yes *bool, who string) {
	f := cmd.Flags()
	f.StringVar(reason, "reason", "", "why, for those who look later; required")
	f.StringVar(by, "by", operator(), who)
	f.BoolVar(yes, "yes", false, "do not ask")
	_ = cmd.MarkFlagRequired("reason") // there is such a flag
}

// setQueue pauses or resumes a queue.
func (a *app) setQueue(ctx context.Context, q queueing, pause bool) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	queues, err := c.Queues(ctx)
	if err != nil {
		return c.failed(ctx, err)
	}
	n := slices.IndexFunc(queues, func(one inspect.Queue) bool { return one.Name == q.name })
	switch {
	case n < 0:
		return cli.Fault(fmt.Errorf("nothing has changed: there is no queue %q: `lockctl doctor` lists all", q.name))
	case queues[n].Paused == pause:
		return cli.Fault(fmt.Errorf("nothing has changed: the queue %q is %s", q.name, map[bool]string{true: "paused already", false: "not paused"}[pause]))
	}
	if !q.yes {
		about := fmt.Sprintf("queue %s: %s, %d of them run now\n", plain(q.name), count(tasksOf(queues[n]), "unfinished task"), queues[n].Active)
		if err := a.ask(ctx, q.name, about, "Have no task of this queue start?"); err != nil {
			return err
		}
	}
	inspector, outcome := asynq.NewInspectorFromRedisClient(c.rdb), "resumed"
	if pause {
		outcome, err = "paused", inspector.PauseQueue(q.name)
	} else {
		err = inspector.UnpauseQueue(q.name)
	}
	if err != nil {
		return c.failed(ctx, err)
	}
	c.settings.Log.Logger(a.stderr).WarnContext(ctx, "an operator has paused or resumed a queue", "queue", q.name, "outcome", outcome, "by", q.by, "reason", q.reason)
	done := queued{Queue: q.name, Outcome: outcome, Tasks: tasksOf(queues[n]), By: q.by, Reason: q.reason}
	return a.print(done, func() string {
		text := fmt.Sprintf("%s: %s by %s; %s.\n", plain(q.name), outcome, plain(q.by), count(done.Tasks, "unfinished task"))
		if pause {
			text += fmt.Sprintf("`lockctl queue resume %s` resumes it.\n", shellArg(q.name))
		}
		return text
	})
}
