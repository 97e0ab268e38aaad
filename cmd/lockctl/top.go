package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/cli"
)

func (a *app) topCommand() *cobra.Command {
	var n int
	cmd := &cobra.Command{
		Use:   "top",
		Short: "List the resources for which tasks wait longest",
		Long: `List the resources with the most waiting time: how long all that wait now have waited,
summed up. If tasks wait for more than 2,000 locks, it finds those with the most waiting time by a
sample of the tasks.`,
		Example: `  lockctl top
  lockctl top -n 3 --json`,
		Args: cli.None,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if n < 1 {
				return fmt.Errorf("-n: want 1 or more, have %d", n)
			}
			return a.with(cmd.Context(), func(ctx context.Context, c *connection) error { return a.top(ctx, c, n) })
		},
	}
	cmd.Flags().IntVarP(&n, "number", "n", 10, "list at most `n` resources")
	return cmd
}

func (a *app) top(ctx context.Context, c *connection, n int) error {
	list, err := c.Top(ctx, n)
	if err != nil {
		return c.failed(ctx, err)
	}
	if list.LeftOut > 0 {
		a.say("lockctl: %s\n", leftOut(list.LeftOut))
	}
	if list.Locks == nil {
		list.Locks = []inspect.Lock{}
	}
	return a.printTable(list.Locks, topTable(list.Locks))
}

func topTable(locks []inspect.Lock) *table {
	t := newTable(cut("RESOURCE"), right("WAIT TIME"), right("WAITERS"), right("OLDEST"), left("STATE"), cut("HOLDER"), cut("WORKER"))
	for _, l := range locks {
		t.add(l.Resource, l.WaitTime.String(), fmt.Sprint(l.Waiting), oldestOf(l), string(l.State), holderOf(l), workerOf(l))
	}
	return t
}
