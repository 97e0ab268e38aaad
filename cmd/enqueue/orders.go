package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

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
ID), and maybe Description and Country, in any order.

  each line           warehouse:allocate
  each line of goods  stock:deduct; a cancellation brings the goods back, any
                      other negative quantity writes them off
  each order          order:audit
  each order          balance:debit of its value, if the customer is known

A bad line is refused by its number and does not stop the rest. If an order comes
back after another one, its further lines are audited and debited once more.

What comes from stdin (-) or a pipe is kept in a temporary file first, as the ids of
the tasks depend on all of it.

` + resumeHelp,
		Example: `  enqueue orders online_retail.csv.gz --dry-run
  enqueue orders online_retail.csv.gz --redis 10.0.0.7:6379
  zcat online_retail.csv.gz | enqueue orders -`,
		Args: one("FILE", "an order file, or - for stdin"),
		RunE: func(cmd *cobra.Command, args []string) error {
			in.name = args[0]
			return a.orders(cmd.Context(), in, retention)
		},
	}
	cmd.Flags().StringVar(&in.queue, "queue", "", `name of the queue (default "default")`)
	// Long enough to start again after a crash with nothing enqueued twice, and
	// short enough for Redis to forget a large file soon.
	cmd.Flags().DurationVar(&retention, "retention", 10*time.Minute, "how long tasks are kept after their success")
	in.addFlags(cmd.Flags())
	return cmd
}

func (a *app) orders(ctx context.Context, in input, retention time.Duration) error {
	if err := checkFlags(&queue.Options{Queue: in.queue, Retention: retention}); err != nil {
		return err
	}
	f, done, err := a.readTwice(ctx, in.name)
	if err != nil {
		return err
	}
	defer done()
	text, err := orders.Unpack(f)
	if err == nil {
		in.content, err = fingerprint(ctx, text)
	}
	if err == nil {
		err = rewind(f)
	}
	if err == nil {
		text, err = orders.Unpack(f)
	}
	if err != nil {
		return fault(fmt.Errorf("%s: %w", in.name, err))
	}
	sum := sha256.New()
	reader, err := orders.NewReader(io.TeeReader(text, sum))
	if err != nil {
		return fault(fmt.Errorf("%s: %w", in.name, err))
	}
	plan := orders.NewPlan(orders.PlanConfig{Content: in.content.short(), Queue: in.queue, Retention: retention})
	in.items = unchanged(func(yield func(item, error) bool) {
		for job, err := range plan.Jobs(reader) {
			it := item{job: job.Job, line: job.Line, through: job.Through}
			if _, ok := errors.AsType[*orders.LineError](err); ok {
				it.refused, err = err, nil
			}
			if !yield(it, err) {
				return
			}
		}
	}, in.content, sum)
	in.counts = plan.Counts
	return a.feed(ctx, in)
}
