package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/cli"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/queue"
)

func (a *app) tasksCommand() *cobra.Command {
	var most int
	cmd := &cobra.Command{
		Use:   "tasks [RESOURCE]",
		Short: "List tasks that wait, have failed or are archived, by resource",
		Long: `List tasks that wait for a lock, that have failed and run again later, and that are
archived: those of a resource, or all. Tasks without a resource come first.

  STATE  waiting and ready tasks are in the line of their resource, snoozed ones come
         again by themselves, retrying ones have failed, and archived ones do not run
         again by themselves

If there are more than --count, archived tasks are listed before others. At most 10,000
tasks of each kind in each queue are looked at.`,
		Example: `  lockctl tasks
  lockctl tasks order:536365 --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return cli.Misused(cmd, args)
			}
			if len(args) == 1 {
				return store.CheckResource(args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if most < 1 || most > 1000 {
				return fmt.Errorf("--count: want 1 to 1000, have %d", most)
			}
			resource := strings.Join(args, "") // "" for all
			return a.with(cmd.Context(), func(ctx context.Context, c *connection) error { return a.tasks(ctx, c, resource, most) })
		},
	}
	cmd.Flags().IntVar(&most, "count", 50, "show at most `n` tasks")
	return cmd
}

// A listed is a task of the list.
type listed struct {
	Task     inspect.Task  `json:"task"`
	State    inspect.State `json:"state"`
	Resource string        `json:"resource,omitempty"`
	Position int           `json:"position,omitempty"`
	Next     time.Time     `json:"next,omitzero"` // when it comes by itself
	Error    string        `json:"error,omitempty"`
}

func (a *app) tasks(ctx context.Context, c *connection, resource string, most int) error {
	found, leftOut, err := c.find(ctx, resource, most)
	if err != nil {
		return c.failed(ctx, err)
	}
	all := make([]listed, 0, len(found)) // never nil, for JSON
	for _, t := range found {
		e, err := c.Why(ctx, t.Queue, t.ID)
		if errors.Is(err, inspect.ErrUnknownTask) || err == nil && e.State == inspect.StateCompleted {
			continue // it has ended meanwhile
		}
		if err != nil {
			return c.failed(ctx, err)
		}
		l := listed{Task: e.Task, State: e.State, Resource: e.Resource, Position: e.Position, Error: cmp.Or(e.Failure, e.LastError)}
		switch e.State { //nolint:exhaustive // those that come at a time, and those whose last error is none of their own
		case inspect.StateSnoozed, inspect.StateRetrying:
			l.Next = e.Next
		case inspect.StateWaiting, inspect.StateReady, inspect.StateArchived: // the last error may say for what it waits, or waited
			l.Error = e.Failure
		}
		all = append(all, l)
	}
	slices.SortStableFunc(all, func(x, y listed) int {
		return cmp.Or(cmp.Compare(x.Resource, y.Resource), cmp.Compare(x.State, y.State), cmp.Compare(x.Position, y.Position), cmp.Compare(x.Task.ID, y.Task.ID))
	})
	if leftOut {
		a.say("lockctl: there are more tasks: --count shows more, and a RESOURCE only its own\n")
	}
	return a.printTable(all, a.taskTable(all))
}

// taskTable shows tasks for people.
func (a *app) taskTable(all []listed) *table {
	t := newTable(left("RESOURCE"), left("TASK"), left("QUEUE"), left("STATE"), right("POSITION"), right("COMES"), left("ERROR"))
	for _, l := range all {
		position, comes := "-", "-"
		if l.Position > 0 {
			position = fmt.Sprint(l.Position)
		}
		if !l.Next.IsZero() {
			comes = "in " + inspect.Duration(max(0, l.Next.Sub(a.now()))).String()
		}
		t.add(cmp.Or(l.Resource, "-"), taskText(&l.Task), l.Task.Queue, string(l.State), position, comes, l.Error)
	}
	return t
}

// find returns the first tasks of asynq's archives and then of its retry sets, those of a resource if it is not empty: archived ones
// do not run again by themselves, and thousands may wait. It says whether it has left some out.
func (c *connection) find(ctx context.Context, resource string, most int) (found []inspect.Task, leftOut bool, _ error) {
	const page, pages = 100, 100 // asynq reads the payloads of a page in one script
	queues, err := c.Queues(ctx)
	if err != nil {
		return nil, false, err
	}
	inspector := asynq.NewInspectorFromRedisClient(c.rdb)
	for _, list := range []func(string, ...asynq.ListOption) ([]*asynq.TaskInfo, error){inspector.ListArchivedTasks, inspector.ListRetryTasks} {
		for _, q := range queues {
			for n := range pages {
				some, err := list(q.Name, asynq.PageSize(page), asynq.Page(n+1))
				if errors.Is(err, asynq.ErrQueueNotFound) {
					break
				}
				if err != nil {
					return nil, false, err
				}
				fits, err := c.fitting(ctx, some, resource)
				if err != nil {
					return nil, false, err
				}
				found = append(found, fits...)
				if len(found) > most {
					return found[:most], true, nil
				}
				if len(some) == 0 { // one with fewer may have had some that asynq cannot read
					break
				}
				leftOut = leftOut || n == pages-1
			}
		}
	}
	return found, leftOut, nil
}

// fitting returns those of the tasks that are of a resource; all if that is empty.
func (c *connection) fitting(ctx context.Context, some []*asynq.TaskInfo, resource string) (fits []inspect.Task, err error) {
	var locks []string
	if resource != "" {
		locks, err = taskredis.Each(ctx, c.rdb, some, func(pipe redis.Pipeliner, t *asynq.TaskInfo) *redis.StringCmd {
			return pipe.HGet(ctx, taskredis.TaskKey(t.Queue, t.ID), "siding_lock")
		})
		if err != nil {
			return nil, err
		}
	}
	isOf := func(key string) bool {
		of, _, _, ok := taskredis.ResourceOf(key, c.settings.Queue.Lock.Prefix)
		return ok && of == resource
	}
	for i, t := range some {
		if resource == "" || slices.Contains(store.Names(t.Headers[queue.HeaderResource]), resource) ||
			slices.ContainsFunc(store.SplitLocks(locks[i]), isOf) {
			fits = append(fits, inspect.Task{Queue: t.Queue, ID: t.ID, Kind: t.Type})
		}
	}
	return fits, nil
}
