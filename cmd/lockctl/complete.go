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

// A finder finds names that an argument or a flag may have, and says what they are; "" for nothing.
type finder func(ctx context.Context, c *connection, found func(name, what string)) error

// completion suggests what find finds in Redis. If Redis does not answer there are no suggestions: the shell has no place for
// an error.
func (a *app) completion(find finder) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, begin string) (found []string, _ cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		err := a.with(ctx, func(ctx context.Context, c *connection) error {
			return find(ctx, c, func(name, what string) { found = suggest(found, begin, name, what) })
		})
		if err != nil {
			found = nil
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// argument is [app.completion] of the first argument of a command.
func (a *app) argument(find finder) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return a.completion(find)(cmd, args, begin)
	}
}

// findResources finds the resources of list.
func findResources(ctx context.Context, c *connection, found func(name, what string)) error {
	list, err := c.Held(ctx)
	for _, l := range list.Locks {
		found(l.Resource, fmt.Sprintf("%s, %s", holderOf(l), count(l.Waiting, "waiter")))
	}
	return err
}

// findLimits finds the patterns of the limits that were set.
func findLimits(ctx context.Context, c *connection, found func(name, what string)) error {
	all, err := queue.Limits(ctx, c.rdb, c.settings.Queue.Lock.Prefix)
	for _, o := range all {
		found(o.Pattern, limitText(inspect.LimitOf(o)))
	}
	return err
}

// findTasks finds the tasks that hold a lock.
func findTasks(ctx context.Context, c *connection, found func(name, what string)) error {
	list, err := c.Held(ctx)
	for _, l := range list.Locks {
		if l.Task != nil {
			found(l.Task.ID, fmt.Sprintf("%s, has %s", cmp.Or(l.Task.Kind, "task"), l.Resource))
		}
	}
	return err
}

// findHolding finds the tasks that hold a line.
func (a *app) findHolding(ctx context.Context, c *connection, found func(name, what string)) error {
	lines, _, err := c.HeldLines(ctx)
	for _, l := range lines {
		found(l.Task.ID, fmt.Sprintf("%s, %s", l.Resource, a.goesOn(l)))
	}
	return err
}

func findQueues(ctx context.Context, c *connection, found func(name, what string)) error {
	queues, err := c.Queues(ctx)
	for _, q := range queues {
		found(q.Name, "")
	}
	return err
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
