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
	"github.com/sidingq/siding/queue"
)

// A change is what an operator does to a task. A task that runs is never touched.
type change struct {
	outcome  string // the state of the task, or deleted
	question string // none if it does not ask
	do       func(*asynq.Inspector, inspect.Task) error
	not      map[inspect.State]string // why not, by the state of the task
	// held does it to a task that holds its line, and returns the outcome; nil if such a task is to be archived first.
	held func(context.Context, redis.UniversalClient, errand) (string, error)
}

// A settled is what became of a task.
type settled struct {
	Task     inspect.Task `json:"task"`
	Resource string       `json:"resource"`
	Outcome  string       `json:"outcome"` // pending, retried, archived or deleted
	Waiting  int          `json:"waiting"` // behind it, if it holds or has held its line
	By       string       `json:"by"`
	Reason   string       `json:"reason,omitempty"`
}

const (
	deleted      = "deleted"
	retried      = "retried" // in its line, which goes on if it succeeds
	waitsInLine  = "it waits for its lock, and runs in its turn"
	hasSucceeded = "it has succeeded"
)

func (a *app) runCommand() *cobra.Command {
	// It asks nothing: the task would run by itself, or has to run at some time.
	return a.errand(&cobra.Command{
		Use:   "run TASK",
		Short: "Have a task run now that is archived, or comes at a later time",
		Long: `Have a task run now that is archived, or was to come at a later time: as soon as its
resource is free and a server of its queue has a slot. One that holds its line runs
before those behind it, and if it succeeds, the line goes on. An archived task has no
retries left: if it fails again, it is archived again, and a line that it had stopped
stops again.`,
		Example: `  lockctl run 77ab09
  lockctl run 77ab09 --queue critical --json`,
	}, "", a.change(change{
		outcome: string(inspect.StatePending),
		do:      func(i *asynq.Inspector, t inspect.Task) error { return i.RunTask(t.Queue, t.ID) },
		not: map[inspect.State]string{
			inspect.StatePending: "it is pending: a worker takes it in its turn", inspect.StateReady: waitsInLine, inspect.StateWaiting: waitsInLine,
			inspect.StateCompleted: hasSucceeded,
		},
		held: func(ctx context.Context, rdb redis.UniversalClient, of errand) (string, error) {
			return retried, queue.RetryHeld(ctx, rdb, of.queue, of.id)
		},
	}))
}

func (a *app) archiveCommand() *cobra.Command {
	return a.errand(&cobra.Command{
		Use:   "archive TASK --reason TEXT",
		Short: "Archive a task, after a question",
		Long: `Archive a task, after a question: it does not run by itself any more, and run has it
run. If it waits for a lock, it leaves the line. A task that runs is not archived: end
its attempt by release. If it has failed and holds its line, or has stopped it, it is
given up: the line goes on with the next one, and the reason and your name become the
task's last error, before its own. Otherwise only the log of lockctl has the reason.`,
		Example: `  lockctl archive 77ab09 --reason 'the order was canceled'
  lockctl archive 77ab09 --reason 'drill' --by alice --yes`,
	}, "who does it", a.change(change{
		outcome: string(inspect.StateArchived), question: "Archive this task? It does not run by itself any more.",
		do:  func(i *asynq.Inspector, t inspect.Task) error { return i.ArchiveTask(t.Queue, t.ID) },
		not: map[inspect.State]string{inspect.StateArchived: "it is archived already", inspect.StateCompleted: hasSucceeded},
		held: func(ctx context.Context, rdb redis.UniversalClient, of errand) (string, error) {
			return string(inspect.StateArchived), queue.SkipHeld(ctx, rdb, of.queue, of.id, of.by, of.reason)
		},
	}))
}

func (a *app) deleteCommand() *cobra.Command {
	return a.errand(&cobra.Command{
		Use:   "delete TASK --reason TEXT",
		Short: "Delete a task, after a question",
		Long: `Delete a task, after a question. If it waits for a lock, it leaves the line. A task that
runs is not deleted: end its attempt by release. One that holds its line has to be
archived first. The log of lockctl has the reason; Redis does not keep it.`,
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
		question, held := does.question, holdsLine(e)
		if held {
			question += " Its line goes on."
		}
		if err := a.ask(ctx, of.deed, of.id, a.explanation(e), question); err != nil {
			return err
		}
		if e, err = a.changeable(ctx, c, of, does); err != nil { // it may have run while the operator thought
			return err
		}
		if holdsLine(e) != held { // as nobody has been told
			return unchanged("task %q: it has run meanwhile: `lockctl why %s` says more", of.id, inspect.ShellArg(of.id))
		}
		done := settled{Task: e.Task, Resource: e.Resource, Outcome: does.outcome, By: of.by, Reason: of.reason}
		ctx, of.queue = context.WithoutCancel(ctx), e.Task.Queue // an interrupt must not hide whether it was done
		if held {
			done.Waiting = e.Line.Waiting
			done.Outcome, err = does.held(ctx, c.rdb, of)
			if errors.Is(err, queue.ErrHoldsNoLine) && done.Outcome == retried && !c.isArchived(ctx, e.Task) {
				err = nil // it runs, or has run, by an earlier copy of the call, whose answer was lost
			}
		} else {
			err = a.byInspector(ctx, c, e, does)
		}
		switch {
		case errors.Is(err, queue.ErrHoldsNoLine):
			return unchanged("%w", err)
		case errors.Is(err, asynq.ErrTaskNotFound), errors.Is(err, asynq.ErrQueueNotFound):
			return cli.Fault(a.unknownTask(ctx, c, of.queue, of.id))
		case err != nil: // also if asynq refuses a task that has begun since
			return c.failed(ctx, fmt.Errorf("task %q: %w", of.id, err))
		}
		a.recorder(c).WarnContext(ctx, "an operator has changed a task", of.record("task_id", of.id, "queue", of.queue, "resource", done.Resource, "outcome", done.Outcome)...)
		return a.print(done, done.text)
	}
}

// text is for people.
func (s settled) text() string {
	text := fmt.Sprintf("%s is %s, by %s", cli.Plain(s.Task.ID), s.Outcome, cli.Plain(s.By))
	if s.Reason != "" {
		text += ": " + cli.Plain(s.Reason)
	}
	waiting := countOf(s.Waiting, "task waits", "tasks wait")
	switch {
	case s.Outcome == retried:
		text += fmt.Sprintf(". It runs next in the line of %s: %s behind it", cli.Plain(s.Resource), waiting)
	case s.Waiting > 0:
		text += fmt.Sprintf(". The line of %s goes on: %s", cli.Plain(s.Resource), waiting)
	}
	return text + ".\n"
}

// byInspector changes a task by asynq's Inspector.
func (a *app) byInspector(ctx context.Context, c *connection, e inspect.Explanation, does change) error {
	lock, err := c.rdb.HGet(ctx, taskredis.TaskKey(e.Task.Queue, e.Task.ID), "siding_lock").Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	if err := does.do(asynq.NewInspectorFromRedisClient(c.rdb), e.Task); err != nil && !does.isDone(ctx, c, e.Task) {
		return err
	}
	if err := c.leaveLine(ctx, e, lock); err != nil {
		a.say("lockctl: the task counts as one that waits until a server has looked at its line: %v\n", err)
	}
	return nil
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

// isArchived reports whether a task is in the archive by now.
func (c *connection) isArchived(ctx context.Context, t inspect.Task) bool {
	e, _ := c.Why(ctx, t.Queue, t.ID)
	return e.State == inspect.StateArchived
}

// holdsLine reports whether a task has failed, and those behind it wait.
func holdsLine(e inspect.Explanation) bool { return e.Line != nil && e.Line.Task.ID == e.Task.ID }

// changeable explains the task of an errand. Its error also says why the task cannot be changed.
func (a *app) changeable(ctx context.Context, c *connection, of errand, does change) (inspect.Explanation, error) {
	e, err := a.theOne(ctx, c, of)
	if err != nil {
		return e, err
	}
	not := does.not[e.State]
	if holdsLine(e) {
		if not = ""; does.held == nil {
			return e, unchanged("the task %q holds the line of %s: `lockctl archive --reason TEXT %s` gives it up first",
				of.id, cli.Plain(e.Resource), inspect.ShellArg(of.id))
		}
	}
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
