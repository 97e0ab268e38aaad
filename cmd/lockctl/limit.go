package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/cli"
	"github.com/sidingq/siding/internal/limits"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

const limitChanged = "an operator has changed a limit" // in the log

// A limiting says which limit to set.
type limiting struct {
	deed

	rates []string
}

func (a *app) limitCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "limit",
		Short: "Set how many tasks may hold a resource at once, or pause it",
		Long: `Set how many tasks may hold a resource at once, and how often one may start. Such a
limit holds in place of that in the settings of the workers, until it is unset. All
servers keep to it within a second. 0 holders pause a resource.`,
		Example: `  lockctl limit list
  lockctl limit set account:42 0 --reason 'the bank is down'
  lockctl limit unset account:42`,
		Args: cli.Subcommand,
		RunE: cli.Subcommand,
	}
	cmd.AddCommand(a.limitListCommand(), a.limitSetCommand(), a.limitUnsetCommand())
	return cmd
}

func (a *app) limitSetCommand() *cobra.Command {
	var l limiting
	var o queue.LimitOverride
	cmd := &cobra.Command{
		Use:   "set PATTERN HOLDERS --reason TEXT",
		Short: "Set the limit of a resource or a pattern; 0 holders pause it",
		Long: `Set how many tasks may hold a resource at once, 0 to 1000. PATTERN is a resource, or a
beginning such as 'account:*'. Then the limit holds for each resource that begins so.
'*' fits all resources. Of several limits that fit a resource the longest pattern
counts. An earlier limit of the same pattern is replaced.

The limit replaces those in the settings of the workers, also those of longer patterns,
and the single holder of resources without a limit: 5 holders for '*' let five tasks
have each resource at once.

A higher limit lets as many waiters begin as there is room for. A lower one takes no lock
away: no task starts until there are fewer holders. With 0 no task starts until the
limit is changed or unset.

Each --rate says how often a task may start: 100/1s is at most 100 in any second.
Without --rate the rates in the settings of the workers stay.`,
		Example: `  lockctl limit set account:42 0 --reason 'the bank is down'
  lockctl limit set 'account:*' 3 --reason 'stock count'
  lockctl limit set 'api:*' 10 --rate 100/1s --rate 5000/1h --reason 'a new contract'`,
		Args: func(cmd *cobra.Command, args []string) (err error) {
			if len(args) != 2 {
				return cli.Misused(cmd, args)
			}
			o, err = l.override(args[0], args[1]) // here, so that cobra does not complain of a missing reason first
			return err
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd.Context(), func(ctx context.Context, c *connection) error { return a.setLimit(ctx, c, o) })
		},
	}
	l.addFlags(cmd, "who sets the limit")
	cmd.Flags().StringArrayVar(&l.rates, "rate", nil, "at most so many `starts/period`, such as 100/1s; may be repeated")
	return cmd
}

// override returns the limit that is asked for. An error names all arguments and flags that are wrong.
func (l *limiting) override(pattern, holders string) (queue.LimitOverride, error) {
	o := queue.LimitOverride{Pattern: pattern, By: l.by, Reason: l.reason}
	var wrong []string
	err := limits.CheckPattern(pattern)
	if err != nil {
		wrong = append(wrong, "pattern: "+err.Error())
	}
	if o.Holders, err = strconv.Atoi(holders); err != nil || o.Holders < 0 || o.Holders > store.MaxLimit {
		wrong = append(wrong, fmt.Sprintf("holders: want a whole number from 0 to %d, have %q", store.MaxLimit, holders))
	}
	if o.Rates, err = ratesOf(l.rates); err != nil {
		wrong = append(wrong, "--rate: "+err.Error())
	}
	if err := l.check(); err != nil {
		wrong = append(wrong, err.Error())
	}
	if wrong != nil {
		return o, errors.New(strings.Join(wrong, "; "))
	}
	return o, nil
}

// ratesOf reads the texts of --rate.
func ratesOf(texts []string) (rates []lock.Rate, err error) {
	rule := store.Rule{Limit: 1}
	for _, text := range texts {
		rate, err := limits.ParseRate(text)
		if err != nil {
			return nil, err
		}
		rates, rule.Rates = append(rates, lock.Rate(rate)), append(rule.Rates, rate)
	}
	if err := rule.Check(); err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "rates: "))
	}
	return rates, nil
}

func (a *app) setLimit(ctx context.Context, c *connection, o queue.LimitOverride) error {
	o.Prefix = c.settings.Queue.Lock.Prefix
	// An interrupt must not hide whether the limit was set.
	err := queue.SetLimit(context.WithoutCancel(ctx), c.rdb, o)
	if errors.Is(err, limits.ErrTooMany) {
		return cli.Fault(fmt.Errorf("%s: %w", cli.Plain(o.Pattern), err))
	}
	if err != nil {
		return c.failed(ctx, err)
	}
	o.At = a.now().UTC()
	set := inspect.LimitOf(o)
	a.recorder(c).WarnContext(ctx, limitChanged, deed{by: o.By, reason: o.Reason}.record("resource", o.Pattern, "outcome", limitText(set))...)
	return a.print(set, func() string {
		if set.Holders == 0 {
			return fmt.Sprintf("%s: paused by %s. Holders at work are not disturbed.\n`lockctl limit unset %s` resumes it.\n",
				cli.Plain(set.Pattern), cli.Plain(set.By), inspect.ShellArg(cli.Plain(set.Pattern)))
		}
		return fmt.Sprintf("%s: %s, set by %s. All servers keep to it within a second.\n", cli.Plain(set.Pattern), limitText(set), cli.Plain(set.By))
	})
}

// limitText says what a limit allows.
func limitText(l inspect.Limit) string {
	text := "paused"
	if l.Holders > 0 {
		text = "at most " + count(l.Holders, "holder")
	}
	if len(l.Rates) > 0 {
		text += ", " + ratesText(l)
	}
	return text
}

// ratesText lists the rates of a limit as --rate has them, and those of the workers as "-".
func ratesText(l inspect.Limit) string {
	if len(l.Rates) == 0 {
		return "-"
	}
	rates := make([]string, len(l.Rates))
	for n, r := range l.Rates {
		rates[n] = r.String()
	}
	return strings.Join(rates, " ")
}

func (a *app) limitUnsetCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "unset PATTERN",
		Short: "Remove a limit that was set; the settings of the workers hold again",
		Long: `Remove the limit of a resource or a pattern, as list names it. The limit in the settings
of the workers holds again within a second. So a resource that was paused is resumed.`,
		Example: `  lockctl limit unset account:42
  lockctl limit unset 'account:*'`,
		Args: cli.One,
		RunE: func(cmd *cobra.Command, args []string) error { // any text: a pattern that is wrong has to go, too
			return a.with(cmd.Context(), func(ctx context.Context, c *connection) error { return a.unsetLimit(ctx, c, args[0]) })
		},
	}
}

func (a *app) unsetLimit(ctx context.Context, c *connection, pattern string) error {
	prefix := c.settings.Queue.Lock.Prefix
	set, _ := queue.Limits(ctx, c.rdb, prefix) // one that cannot be read is no reason not to unset it
	was, err := queue.UnsetLimit(context.WithoutCancel(ctx), c.rdb, prefix, pattern)
	switch {
	case err != nil:
		return c.failed(ctx, err)
	// If the answer is lost, go-redis sends the call again, and there is none any more.
	case !was && !slices.ContainsFunc(set, func(o queue.LimitOverride) bool { return o.Pattern == pattern }):
		return cli.Fault(fmt.Errorf("%s: no limit of this name is set: lockctl limit list names all", cli.Plain(pattern)))
	}
	a.recorder(c).WarnContext(ctx, limitChanged, deed{by: operator()}.record("resource", pattern, "outcome", "unset")...)
	return a.print(map[string]string{"pattern": pattern}, func() string {
		return fmt.Sprintf("%s: no limit is set any more. The settings of the workers hold again within a second.\n", cli.Plain(pattern))
	})
}

func (a *app) limitListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the limits that were set, by whom and why",
		Long: `List the limits that were set by lockctl or a program. Those in the settings of the
workers are not among them.

  HOLDERS  how many tasks may hold each resource at once, or "paused"
  RATES    at most so many starts in any such period; "-" leaves those of the workers`,
		Example: `  lockctl limit list
  lockctl limit list --json`,
		Args: cli.None,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.with(cmd.Context(), a.listLimits) },
	}
}

func (a *app) listLimits(ctx context.Context, c *connection) error {
	set, failed := queue.Limits(ctx, c.rdb, c.settings.Queue.Lock.Prefix)
	if failed != nil && len(set) == 0 {
		return c.failed(ctx, failed)
	}
	all := make([]inspect.Limit, len(set))
	for n, o := range set {
		all[n] = inspect.LimitOf(o)
	}
	if err := a.printTable(all, a.limitTable(all)); err != nil {
		return err
	}
	if failed != nil { // some cannot be read
		return c.failed(ctx, failed)
	}
	return nil
}

// limitTable shows limits for people.
func (a *app) limitTable(all []inspect.Limit) *table {
	t := newTable(left("PATTERN"), right("HOLDERS"), left("RATES"), left("BY"), right("SET"), left("REASON"))
	for _, l := range all {
		holders := "paused"
		if l.Holders > 0 {
			holders = strconv.Itoa(l.Holders)
		}
		t.add(l.Pattern, holders, ratesText(l), l.By, a.ago(l.At), l.Reason)
	}
	return t
}
