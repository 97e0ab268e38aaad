package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/queue"
)

// completionTime is how long a shell waits for suggestions.
const completionTime = 2 * time.Second

// complete returns the suggestions that find finds in Redis. If Redis does not answer there are none:
// the shell has no place for an error.
func (a *app) complete(cmd *cobra.Command, find func(context.Context, *connection) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	defer cancel()
	c, err := a.connect(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer c.Close()
	found, err := find(ctx, c)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

// completeResources suggests the resources of list.
func (a *app) completeResources(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.complete(cmd, func(ctx context.Context, c *connection) (found []string, err error) {
		list, err := c.Held(ctx)
		for _, l := range list.Locks {
			found = suggest(found, begin, l.Resource, fmt.Sprintf("%s, %s", holderOf(l), count(l.Waiting, "waiter")))
		}
		return found, err
	})
}

// completeLimits suggests the patterns of the limits that were set.
func (a *app) completeLimits(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.complete(cmd, func(ctx context.Context, c *connection) (found []string, err error) {
		all, err := queue.Limits(ctx, c.rdb, c.settings.Queue.Lock.Prefix)
		for _, o := range all {
			found = suggest(found, begin, o.Pattern, limitText(inspect.LimitOf(o)))
		}
		return found, err
	})
}

// completeTasks suggests the tasks that hold a lock.
func (a *app) completeTasks(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.complete(cmd, func(ctx context.Context, c *connection) (found []string, err error) {
		list, err := c.Held(ctx)
		for _, l := range list.Locks {
			if l.Task != nil {
				found = suggest(found, begin, l.Task.ID, fmt.Sprintf("%s, has %s", cmp.Or(l.Task.Kind, "task"), l.Resource))
			}
		}
		return found, err
	})
}

// completeQueues suggests the queues.
func (a *app) completeQueues(cmd *cobra.Command, _ []string, begin string) ([]string, cobra.ShellCompDirective) {
	return a.complete(cmd, func(ctx context.Context, c *connection) (found []string, err error) {
		queues, err := c.Queues(ctx)
		for _, q := range queues {
			found = suggest(found, begin, q.Name, "")
		}
		return found, err
	})
}

// suggest adds a name that begins as wanted, with what it is. Names that a shell could misread are left
// out: a tab or a line end ends a suggestion.
func suggest(found []string, begin, name, what string) []string {
	if !strings.HasPrefix(name, begin) || plain(name) != name {
		return found
	}
	if what != "" {
		name += "\t" + plain(what)
	}
	return append(found, name)
}
