package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/sidingq/siding/internal/orders"
	"github.com/sidingq/siding/queue"
)

func (a *app) ordersCommand() *cobra.Command {
	var (
		into      string
		retention time.Duration
		restart   bool
	)
	cmd := &cobra.Command{
		Use:   "orders FILE.csv[.gz]",
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

` + resumeHelp,
		Example: `  enqueue orders online_retail.csv.gz --dry-run
  enqueue orders online_retail.csv.gz --redis 10.0.0.7:6379`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.orders(cmd.Context(), args[0], into, retention, restart)
		},
	}
	cmd.Flags().StringVar(&into, "queue", "", `name of the queue (default "default")`)
	// Long enough to start again after a crash with nothing enqueued twice, and
	// short enough for Redis to forget a large file soon.
	cmd.Flags().DurationVar(&retention, "retention", 10*time.Minute, "how long tasks are kept after their success")
	cmd.Flags().BoolVar(&restart, "restart", false, "forget the checkpoint of this file and begin at its first line")
	return cmd
}

func (a *app) orders(ctx context.Context, name, into string, retention time.Duration, restart bool) error {
	if err := checkFlags(&queue.Options{Queue: into, Retention: retention}); err != nil {
		return err
	}
	f, regular, err := openRegular(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if !regular {
		return fmt.Errorf("%s: want a file that can be read twice: the ids of its tasks depend on all of it", name)
	}
	in := input{command: "orders", name: name, queue: into, restart: restart}
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
		return fault(fmt.Errorf("%s: %w", name, err))
	}
	sum := sha256.New()
	reader, err := orders.NewReader(io.TeeReader(text, sum))
	if err != nil {
		return fault(fmt.Errorf("%s: %w", name, err))
	}
	plan := orders.NewPlan(orders.PlanConfig{Content: in.content.short(), Queue: into, Retention: retention})
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
