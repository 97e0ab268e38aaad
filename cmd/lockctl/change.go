package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/cli"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/taskredis"
)

// A change is what an operator does to a task by asynq's Inspector. A task that runs is never touched.
type change struct {
	verb, outcome string
	question      string // none if it does not ask
	do            func(*asynq.Inspector, inspect.Task) error
	not           map[inspect.State]string // why not, by the state of the task
}

const waitsInLine = "it waits for its lock, and runs in its turn"

// changes are all of them.
var changes = map[string]change{
	"run": {
		verb: "run", outcome: "pending",
		do: func(i *asynq.Inspector, t inspect.Task) error { return i.RunTask(t.Queue, t.ID) },
		not: map[inspect.State]string{
			inspect.StatePending: "it is pending: a worker takes it in its turn", inspect.StateReady: waitsInLine, inspect.StateWaiting: waitsInLine,
		},
	},
	"archive": {
		verb: "archive", outcome: "archived", question: "Archive this task? It does not run by itself any more.",
		do:  func(i *asynq.Inspector, t inspect.Task) error { return i.ArchiveTask(t.Queue, t.ID) },
		not: map[inspect.State]string{inspect.StateArchived: "it is archived already", inspect.StateCompleted: "it has succeeded"},
	},
	"delete": {
		verb: "delete", outcome: "deleted", question: "Delete this task? Nothing remains of it.",
		do: func(i *asynq.Inspector, t inspect.Task) error { return i.DeleteTask(t.Queue, t.ID) },
	},
}

func (a *app) runCommand() *cobra.Command {
	var s settling
	cmd := &cobra.Command{
		Use:   "run TASK",
		Short: "Have a task run now that is archived, or comes at a later time",
		Long: `Have a task run now that is archived, or was to come at a later time: as soon as its
resource is free and a server of its queue has a slot. An archived task has no retries
left. A task that holds its line is run by retry.

` + statuses,
		Example: `  lockctl run 77ab09
  lockctl run 77ab09 --queue critical --json`,
		Args:              cli.One,
		ValidArgsFunction: a.completeTasks,
		RunE: func(cmd *cobra.Command, args []string) error {
			s.id, s.yes, s.by = args[0], true, operator() // it would run by itself, or has to run at some time
			return a.change(cmd.Context(), s, changes["run"])
		},
	}
	a.addQueueFlag(cmd, &s.queue)
	return cmd
}

func (a *app) archiveCommand() *cobra.Command {
	return a.changeCommand(changes["archive"], "Archive a task, after a question",
		`Archive a task, after a question: it does not run by itself any more, and run has it
run. If it waits for a lock, it leaves the line. A task that runs is not archived: end
its attempt by release. A task that holds its line is given up by skip. The log of
lockctl has the reason; Redis does not keep it.`)
}

func (a *app) deleteCommand() *cobra.Command {
	return a.changeCommand(changes["delete"], "Delete a task, after a question",
		`Delete a task, after a question. If it waits for a lock, it leaves the line. A task that
runs is not deleted: end its attempt by release. A task that holds its line is given up
by skip first. The log of lockctl has the reason; Redis does not keep it.`)
}

func (a *app) changeCommand(does change, short, long string) *cobra.Command {
	var s settling
	cmd := &cobra.Command{
		Use: does.verb + " TASK --reason TEXT", Short: short, Long: long + "\n\n" + statuses,
		Example:           "  lockctl " + does.verb + " 77ab09 --reason 'the order was canceled'\n  lockctl " + does.verb + " 77ab09 --reason 'drill' --by alice --yes",
		Args:              cli.One,
		ValidArgsFunction: a.completeTasks,
		RunE: func(cmd *cobra.Command, args []string) error {
			s.id = args[0]
			if err := checkTexts(s.reason, s.by); err != nil {
				return err
			}
			return a.change(cmd.Context(), s, does)
		},
	}
	a.addQueueFlag(cmd, &s.queue)
	a.addReasonFlags(cmd, &s.reason, &s.by, &s.yes, "who does it")
	return cmd
}

// change changes a task.
func (a *app) change(ctx context.Context, s settling, does change) error {
	c, e, err := a.openTask(ctx, s)
	if err != nil {
		return err
	}
	defer c.Close()
	if e.Line != nil && e.Line.Task.ID == s.id {
		return cli.Fault(fmt.Errorf("nothing has changed: the task %q holds the line of %s: `lockctl retry %s` or `lockctl skip --reason TEXT %[3]s` sets it going", s.id, plain(e.Resource), shellArg(s.id)))
	}
	not := does.not[e.State]
	switch e.State { //nolint:exhaustive // the others are not at work
	case inspect.StateRunning, inspect.StateStarting, inspect.StateLost, inspect.StateOrphaned:
		not = "a worker has it"
	}
	if not != "" {
		return cli.Fault(fmt.Errorf("nothing has changed: task %q: %s: `lockctl why %s` says more", s.id, not, shellArg(s.id)))
	}
	if !s.yes {
		if err := a.ask(ctx, s.id, a.explanation(e), does.question); err != nil {
			return err
		}
	}
	ctx = context.WithoutCancel(ctx) // an interrupt must not hide whether it was done
	lock, err := c.rdb.HGet(ctx, taskredis.TaskKey(e.Task.Queue, s.id), "siding_lock").Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return c.failed(ctx, err)
	}
	if err := does.do(asynq.NewInspectorFromRedisClient(c.rdb), e.Task); err != nil { // asynq refuses a task that has begun since
		if errors.Is(err, asynq.ErrTaskNotFound) || errors.Is(err, asynq.ErrQueueNotFound) {
			return cli.Fault(a.unknownTask(ctx, c, e.Task.Queue, s.id))
		}
		return cli.Fault(fmt.Errorf("task %q: %w", s.id, err))
	}
	if err := c.leaveLine(ctx, e, lock); err != nil {
		return c.failed(ctx, err)
	}
	c.settings.Log.Logger(a.stderr).WarnContext(ctx, "an operator has changed a task",
		"task_id", s.id, "queue", e.Task.Queue, "resource", e.Resource, "outcome", does.outcome, "by", s.by, "reason", s.reason)
	done := settled{Task: e.Task, Resource: e.Resource, Outcome: does.outcome, By: s.by, Reason: s.reason}
	return a.print(done, func() string {
		text := fmt.Sprintf("%s is %s, by %s", plain(s.id), does.outcome, plain(s.by))
		if s.reason != "" {
			text += ": " + plain(s.reason)
		}
		return text + ".\n"
	})
}

// leaveLine takes a task that waited, and has been archived or deleted, out of the line of its lock. Servers would do so when
// its turn comes; until then it would count as one that waits. If it waits again by now, they put it back.
func (c *connection) leaveLine(ctx context.Context, e inspect.Explanation, locks string) error {
	if locks == "" || e.State != inspect.StateWaiting && e.State != inspect.StateReady && e.State != inspect.StateParked {
		return nil
	}
	for _, key := range store.SplitLocks(locks) {
		if err := c.rdb.ZRem(ctx, taskredis.LineKey(e.Task.Queue, key), e.Task.ID).Err(); err != nil {
			return err
		}
	}
	return nil
}

// openTask connects, and explains the one task that is meant. The error says that there is none, or several. Otherwise the caller
// closes the connection.
func (a *app) openTask(ctx context.Context, s settling) (*connection, inspect.Explanation, error) {
	if s.id == "" {
		return nil, inspect.Explanation{}, errors.New("want the id of a task, have nothing")
	}
	c, err := a.connect(ctx)
	if err != nil {
		return nil, inspect.Explanation{}, err
	}
	e, err := c.Why(ctx, s.queue, s.id)
	switch {
	case errors.Is(err, inspect.ErrUnknownTask):
		err = cli.Fault(a.unknownTask(ctx, c, s.queue, s.id))
	case err != nil:
		err = c.failed(ctx, err)
	case len(e.AlsoIn) > 0 && s.queue == "":
		err = cli.Fault(fmt.Errorf("nothing has changed: several queues have a task %q: say by --queue which one is meant", s.id))
	}
	if err != nil {
		_ = c.Close() // the error is what counts
	}
	return c, e, err
}
