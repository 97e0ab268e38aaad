package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sidingq/siding/internal/cli"
	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/tasks/orders"
)

func (a *app) ordersCommand() *cobra.Command {
	in := input{command: "orders"}
	var retention time.Duration
	cmd := &cobra.Command{
		Use:   "orders FILE.csv[.gz]|-",
		Short: "Enqueue the tasks that an order file asks for",
		Long: `Enqueue the tasks that an order file in the Online Retail format asks for: a CSV
file, compressed with gzip or not, with the columns InvoiceNo (or Invoice),
StockCode, Quantity, InvoiceDate, UnitPrice (or Price), CustomerID (or Customer
ID), and maybe Description and others, in any order.

  each line           warehouse:allocate
  each line of goods  stock:deduct; a cancellation brings the goods back, any
                      other negative quantity writes them off
  each order          order:audit
  each order          balance:debit of its value, if the customer is known

A bad line is refused by its number and does not stop the rest. If an order comes
back after another one, its further lines are audited and debited once more.

The ids of the tasks depend on the whole text. So the text of stdin (-) or a pipe
goes to a temporary file first.

` + resumeHelp,
		Example: `  enqueue orders online_retail.csv.gz --dry-run
  enqueue orders online_retail.csv.gz --redis 10.0.0.7:6379
  zcat online_retail.csv.gz | enqueue orders -`,
		Args: cli.One,
		RunE: func(cmd *cobra.Command, args []string) error {
			in.name = args[0]
			return a.orders(cmd.Context(), in, retention)
		},
	}
	cmd.Flags().DurationVar(&retention, "retention", keptFor, "keep tasks for this long after their success")
	in.addFlags(cmd.Flags())
	return cmd
}

func (a *app) orders(ctx context.Context, in input, retention time.Duration) error {
	if err := checkFlags(&queue.Options{Queue: in.queue, Retention: retention}); err != nil {
		return err
	}
	from, f, err := a.open(in)
	if err != nil {
		return err
	}
	defer f.Close()
	if f == nil || !regular(f) {
		if f, err = copied(ctx, from); err != nil {
			return cli.Fault(fmt.Errorf("%s: %w", in.name, err))
		}
		defer remove(f)
	}
	from, in.content, err = twice(ctx, f, orders.Unpack)
	var reader *orders.Reader
	if err == nil {
		reader, err = orders.NewReader(from)
	}
	if err != nil {
		return cli.Fault(fmt.Errorf("%s: %w", in.name, err))
	}
	plan := orders.NewPlan(orders.PlanConfig{Content: in.content.short(), Queue: in.queue, Retention: retention})
	in.jobs, in.counts = plan.Jobs(reader), plan.Counts
	return a.feed(ctx, in)
}
