package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/cli"
)

// A listing says which locks to list, and how.
type listing struct {
	filter string
	sort   string
	all    bool
}

func (a *app) listCommand() *cobra.Command {
	var l listing
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the locks that are held, and who holds them",
		Long: `List the locks that are held or reserved, or that somebody waits for: those of all
running tasks, and up to 2,000 others for which tasks wait.

  STATE    held; revoked, taken from a holder that has not returned yet; reserved for
           a goroutine; foreign, held by another program; free, and the first task
           starts once a server of its queue has a free slot
  WORKER   the process of the holder; "gone" if it is dead or cut off from Redis
  LEFT     how long the lock lives if nobody renews it
  OLDEST   how long the first waiter has waited

A lock that another program holds is not in the list if no task waits for it. --all
finds it. It reads all keys of Redis, which may take minutes.`,
		Example: `  lockctl list
  lockctl list --filter 'order:*' --sort oldest
  lockctl list --all --json`,
		Args: cli.None,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(inspect.Orders(), l.sort) {
				return fmt.Errorf("--sort: want %s, have %q", strings.Join(inspect.Orders(), ", "), l.sort)
			}
			return a.with(cmd.Context(), func(ctx context.Context, c *connection) error { return a.list(ctx, c, l) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&l.filter, "filter", "", "list only resources with this `text` in their names; with a * at its end, those that begin with it")
	f.StringVar(&l.sort, "sort", inspect.Orders()[0], "sort by "+strings.Join(inspect.Orders(), ", "))
	f.BoolVar(&l.all, "all", false, "find all locks, by a scan of all keys")
	_ = cmd.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(inspect.Orders(), cobra.ShellCompDirectiveNoFileComp)) // there is such a flag
	return cmd
}

func (a *app) list(ctx context.Context, c *connection, l listing) error {
	list, err := a.locks(ctx, c, l)
	if err != nil {
		return c.failed(ctx, err)
	}
	if list.LeftOut > 0 {
		a.say("lockctl: %s\n", leftOut(list.LeftOut))
	}
	return a.printTable(list.Locks, a.lockTable(list.Locks))
}

// leftOut says that locks are missing.
func leftOut(n int) string {
	return fmt.Sprintf("%s left out: tasks wait for more locks than one call reads", count(n, "lock"))
}

// locks returns the locks that are asked for, in order. They are never nil, for JSON.
func (a *app) locks(ctx context.Context, c *connection, l listing) (list inspect.List, err error) {
	if l.all {
		line := cli.NewLine(a.stderr)
		list.Locks, err = c.Scan(ctx, func(keys int) { line.Show("lockctl: %d keys read", keys) })
		line.Wipe()
	} else {
		list, err = c.Held(ctx)
	}
	if err != nil {
		return inspect.List{}, err
	}
	kept := make([]inspect.Lock, 0, len(list.Locks))
	for _, lock := range list.Locks {
		if matches(lock.Resource, l.filter) {
			kept = append(kept, lock)
		}
	}
	inspect.Sort(kept, l.sort)
	list.Locks = kept
	return list, nil
}

// matches reports whether a filter is in a name, or, as in the pattern of a limit, with a * at its end, begins it.
func matches(name, filter string) bool {
	if prefix, ok := strings.CutSuffix(filter, "*"); ok {
		return strings.HasPrefix(name, prefix)
	}
	return strings.Contains(name, filter)
}

// lockTable shows locks for people.
func (a *app) lockTable(locks []inspect.Lock) *table {
	t := newTable(left("RESOURCE"), left("STATE"), left("HOLDER"), left("WORKER"), right("SINCE"), right("LEFT"), right("WAITERS"), right("OLDEST"))
	for _, l := range locks {
		t.add(l.Resource, string(l.State), holderOf(l), workerOf(l), a.ago(l.Since), leftOf(l), fmt.Sprint(l.Waiting), waitOf(l))
	}
	return t
}
