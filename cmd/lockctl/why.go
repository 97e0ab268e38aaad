package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/cli"
	"github.com/sidingq/siding/internal/store"
)

func (a *app) whyCommand() *cobra.Command {
	return a.errand(&cobra.Command{
		Use:   "why TASK",
		Short: "Say why a task does not run, and what to do",
		Long: `Explain what a task does and why: its state, its resource, who holds the lock, its
position among those who wait, and what the task has been through. The last three lines
say whether something is wrong, whether it clears by itself, and what you can do.

TASK is the id of a task. The last errors in the dashboard and the logs have it.`,
		Example: `  lockctl why 77ab09
  lockctl why 77ab09 --queue critical --json`,
	}, "", a.why)
}

func (a *app) why(ctx context.Context, c *connection, of errand) error {
	e, err := a.explain(ctx, c, of)
	if err != nil {
		return err
	}
	if err := a.print(e, func() string { return a.explanation(e) }); err != nil {
		return err
	}
	if e.Verdict.Trouble {
		return cli.Exit(exitTrouble, nil)
	}
	return nil
}

// unknownTask is the error of a task that is not there. It says if a resource has that name.
func (a *app) unknownTask(ctx context.Context, c *connection, queue, id string) error {
	where := "no queue has a"
	also := ""
	if queue != "" {
		where, also = fmt.Sprintf("the queue %q has no", queue), "is in another queue, "
	}
	text := fmt.Sprintf("%s task %q: it %swas never enqueued, has succeeded and is not kept, or was deleted", where, id, also)
	if store.CheckResource(id) != nil {
		return errors.New(text)
	}
	if l, _, err := c.Show(ctx, id, 1, 0); err == nil && (l.State != inspect.Free || l.Waiting > 0 || l.Revoked != nil || l.Limit != nil) {
		return fmt.Errorf("%s; but a resource has this name: `lockctl show %s` shows its lock", text, inspect.ShellArg(id))
	}
	if strings.ContainsAny(id, ":*") {
		text += fmt.Sprintf("; if it is a resource: `lockctl show %s`", inspect.ShellArg(id))
	}
	return errors.New(text)
}

// taskStates says what the states of a task mean.
var taskStates = map[inspect.State]string{
	inspect.StatePending:     "pending: a worker may take it",
	inspect.StateReady:       "ready: its lock is free for it",
	inspect.StateScheduled:   "scheduled: its client has chosen a later time",
	inspect.StateWaiting:     "waiting for its lock, in its place",
	inspect.StateSnoozed:     "snoozed: it comes again by itself",
	inspect.StateRetrying:    "retrying: it has failed, and runs again",
	inspect.StateRunning:     "running",
	inspect.StateStarting:    "starting: a worker has it, and asks for its lock",
	inspect.StateLost:        "lost its lock while it ran",
	inspect.StateOrphaned:    "orphaned: its worker is dead or cut off",
	inspect.StateArchived:    "archived: it does not run again by itself",
	inspect.StateCompleted:   "completed",
	inspect.StateAggregating: "aggregating: it waits for others of its group",
}

// explanation is for people.
func (a *app) explanation(e inspect.Explanation) string {
	var f fields
	f.add("task", fmt.Sprintf("%s in queue %s", taskText(&e.Task), e.Task.Queue))
	f.add("also in", strings.Join(e.AlsoIn, ", "))
	f.add("state", cmp.Or(taskStates[e.State], string(e.State)))
	a.addQueue(&f, e)
	a.addWorker(&f, e)
	a.addLock(&f, e)
	f.add("attempts", attempts(e))
	f.add("waited", waited(e))
	f.add("last error", e.LastError)
	if e.Failure != "" && e.Failure != e.LastError {
		f.add("last failure", e.Failure)
	}
	f.add("failed", a.clock(e.FailedAt))
	var v fields
	v.add("Is something wrong?", e.Verdict.Wrong)
	v.add("Will it clear?", e.Verdict.Clears)
	v.add("What can you do?", e.Verdict.Do)
	return f.text() + "\n" + v.text()
}

// addQueue adds when a worker takes the task.
func (a *app) addQueue(f *fields, e inspect.Explanation) {
	switch {
	case e.Pending == 1:
		f.add("next task", "of its queue")
	case e.Pending > 1:
		f.add("before it", count(e.Pending-1, "pending task"))
	case e.PendingMore > 0:
		f.add("before it", fmt.Sprintf("more than %d pending tasks", e.PendingMore))
	}
	if e.Paused {
		f.add("queue", "paused")
	}
	if e.Servers == 0 {
		f.add("servers", "none serves its queue")
	}
	if e.State != inspect.StateWaiting && e.State != inspect.StateReady { // these come when they get their locks
		f.add("comes", a.clock(e.Next))
	}
	f.add("deadline", a.clock(e.Deadline))
}

// addWorker adds who runs the task.
func (a *app) addWorker(f *fields, e inspect.Explanation) {
	if e.Worker != nil {
		f.add("worker", e.Worker.Label())
	}
	f.add("started", a.clock(e.Started))
	if e.State == inspect.StateOrphaned {
		f.add("lease ends", a.clock(e.LeaseEnds))
	}
}

// addLock adds the lock of the task, and its holder.
func (a *app) addLock(f *fields, e inspect.Explanation) {
	f.add("resource", e.Resource)
	f.add("needs", strings.Join(e.Resources, ", "))
	if l := e.Lock; l != nil {
		holder := holderOf(*l)
		if l.Worker != nil {
			holder += " on " + workerOf(*l)
		}
		f.add("holder", holder)
		f.add("since", a.clock(l.Since))
		if l.State != inspect.Free {
			f.add("lease left", leftOf(*l))
		}
		f.add("not served", a.unserved(*l))
		f.add("limit", a.limitOf(l.Limit))
	}
	if e.Position > 0 && e.Lock != nil {
		f.add("position", fmt.Sprintf("%d of %d", e.Position, e.Lock.Waiting))
	}
	if e.Priority > 0 {
		f.add("priority", strconv.Itoa(e.Priority))
	}
	f.add("policy", e.Policy)
	if !e.Since.IsZero() {
		f.add("waits since", fmt.Sprintf("%s (%s ago)", a.moment(e.Since), e.Waited))
	}
}

// attempts says what the task has been through.
func attempts(e inspect.Explanation) string {
	parts := []string{fmt.Sprintf("%d of %d retries used", e.Retried, e.Retries)}
	if e.Crashes > 0 {
		parts = append(parts, fmt.Sprintf("%s (%d use no retry)", countOf(e.Crashes, "worker crash", "worker crashes"), e.Tolerated))
	}
	if e.Losses > 0 {
		parts = append(parts, countOf(e.Losses, "lost lock", "lost locks"))
	}
	return strings.Join(parts, ", ")
}

// waited says how often the task did not get its lock at once.
func waited(e inspect.Explanation) string {
	if e.Parks == 0 {
		return ""
	}
	return countOf(e.Parks, "time", "times")
}
