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
	outcome  string // the state of the task, or deleted
	question string // none if it does not ask
	do       func(*asynq.Inspector, inspect.Task) error
	not      map[inspect.State]string // why not, by the state of the task
}

const (
	deleted      = "deleted"
	waitsInLine  = "it waits for its lock, and runs in its turn"
	hasSucceeded = "it has succeeded"
)

func (a *app) runCommand() *cobra.Command {
	// It asks nothing: the task would run by itself, or has to run at some time.
	return a.errand(&cobra.Command{
		Use:   "run TASK",
		Short: "Have a task run now that is archived, or comes at a later time",
		Long: `Have a task run now that is archived, or was to come at a later time: as soon as its
resource is free and a server of its queue has a slot. An archived task has no retries
left. A task that holds its line is run by retry.`,
		Example: `  lockctl run 77ab09
  lockctl run 77ab09 --queue critical --json`,
	}, "", a.change(change{
		outcome: string(inspect.StatePending),
		do:      func(i *asynq.Inspector, t inspect.Task) error { return i.RunTask(t.Queue, t.ID) },
		not: map[inspect.State]string{
			inspect.StatePending: "it is pending: a worker takes it in its turn", inspect.StateReady: waitsInLine, inspect.StateWaiting: waitsInLine,
			inspect.StateCompleted: hasSucceeded,
		},
	}))
}

func (a *app) archiveCommand() *cobra.Command {
	return a.errand(&cobra.Command{
		Use:   "archive TASK --reason TEXT",
		Short: "Archive a task, after a question",
		Long: `Archive a task, after a question: it does not run by itself any more, and run has it
run. If it waits for a lock, it leaves the line. A task that runs is not archived: end
its attempt by release. A task that holds its line is given up by skip. The log of
lockctl has the reason; Redis does not keep it.`,
		Example: `  lockctl archive 77ab09 --reason 'the order was canceled'
  lockctl archive 77ab09 --reason 'drill' --by alice --yes`,
	}, "who does it", a.change(change{
		outcome: string(inspect.StateArchived), question: "Archive this task? It does not run by itself any more.",
		do:  func(i *asynq.Inspector, t inspect.Task) error { return i.ArchiveTask(t.Queue, t.ID) },
		not: map[inspect.State]string{inspect.StateArchived: "it is archived already", inspect.StateCompleted: hasSucceeded},
	}))
}

func (a *app) deleteCommand() *cobra.Command {
	return a.errand(&cobra.Command{
		Use:   "delete TASK --reason TEXT",
		Short: "Delete a task, after a question",
		Long: `Delete a task, after a question. If it waits for a lock, it leaves the line. A task that
runs is not deleted: end its attempt by release. A task that holds its line is given up
by skip first. The log of lockctl has the reason; Redis does not keep it.`,
		Example: `  lockctl delete 77ab09 --reason 'the order was canceled'
  lockctl delete 77ab09 --reason 'drill' --by alice --yes`,
	}, "who does it", a.change(change{
		outcome: deleted, question: "Delete this task? Nothing remains of it.",
		do: func(i *asynq.Inspector, t inspect.Task) error { return i.DeleteTask(t.Queue, t.ID) },
	}))
}

// change returns what makes a change.
func (a *app) change(does change) func(context.Context, *connection, errand) error {
	return func(ctx context.Context, c *connection, of errand) error {
		e, err := a.changeable(ctx, c, of, does)
		if err != nil {
			return err
		}
		if err := a.ask(ctx, of.deed, of.id, a.explanation(e), does.question); err != nil {
			return err
		}
		if e, err = a.changeable(ctx, c, of, does); err != nil { // it may have run while the operator thought
			return err
		}
		ctx = context.WithoutCancel(ctx) // an interrupt must not hide whether it was done
		lock, err := c.rdb.HGet(ctx, taskredis.TaskKey(e.Task.Queue, of.id), "siding_lock").Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return c.failed(ctx, err)
		}
		err = does.do(asynq.NewInspectorFromRedisClient(c.rdb), e.Task)
		switch {
		case err != nil && does.isDone(ctx, c, e.Task):
		case errors.Is(err, asynq.ErrTaskNotFound), errors.Is(err, asynq.ErrQueueNotFound):
			return cli.Fault(a.unknownTask(ctx, c, e.Task.Queue, of.id))
		case err != nil: // asynq refuses a task that has begun since
			return cli.Fault(fmt.Errorf("task %q: %w", of.id, err))
		}
		if err := c.leaveLine(ctx, e, lock); err != nil {
			a.say("lockctl: the task counts as one that waits until a server has looked at its line: %v\n", err)
		}
		done := settled{Task: e.Task, Resource: e.Resource, Outcome: does.outcome, By: of.by, Reason: of.reason}
		a.record(ctx, c, of.deed, "an operator has changed a task", done.about()...)
		return a.print(done, done.text)
	}
}

// isDone reports whether a task that was changeable is as the change would have it. asynq refuses the second copy of a call, which
// go-redis sends if the answer to the first is lost. A task that was to be deleted may have ended by itself: then it is gone as well.
func (does change) isDone(ctx context.Context, c *connection, t inspect.Task) bool {
	e, err := c.Why(ctx, t.Queue, t.ID)
	if does.outcome == deleted {
		return errors.Is(err, inspect.ErrUnknownTask)
	}
	return err == nil && string(e.State) == does.outcome
}

// changeable explains the task of an errand. Its error also says why the task cannot be changed.
func (a *app) changeable(ctx context.Context, c *connection, of errand, does change) (inspect.Explanation, error) {
	e, err := a.theOne(ctx, c, of)
	if err != nil {
		return e, err
	}
	if e.Line != nil && e.Line.Task.ID == of.id {
		return e, unchanged("the task %q holds the line of %s: `lockctl retry %s` or `lockctl skip --reason TEXT %[3]s` sets it going",
			of.id, cli.Plain(e.Resource), inspect.ShellArg(of.id))
	}
	not := does.not[e.State]
	switch e.State { //nolint:exhaustive // the others are not at work
	case inspect.StateRunning, inspect.StateStarting, inspect.StateLost, inspect.StateOrphaned:
		not = "a worker has it"
	}
	if not != "" {
		return e, unchanged("task %q: %s: `lockctl why %s` says more", of.id, not, inspect.ShellArg(of.id))
	}
	return e, nil
}

// leaveLine takes a task that waited, and has been archived or deleted, out of the line of its lock. Servers would do so when
// its turn comes; until then it would count as one that waits. If it waits again by now, they put it back.
func (c *connection) leaveLine(ctx context.Context, e inspect.Explanation, locks string) error {
	if locks == "" || e.State != inspect.StateWaiting && e.State != inspect.StateReady && e.State != inspect.StateSnoozed {
		return nil
	}
	for _, key := range store.SplitLocks(locks) {
		if err := c.rdb.ZRem(ctx, taskredis.LineKey(e.Task.Queue, key), e.Task.ID).Err(); err != nil {
			return err
		}
	}
	return nil
}
