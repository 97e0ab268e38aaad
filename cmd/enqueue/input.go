package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"

	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/tasks/orders"
)

// defaultQueue is the queue of tasks that name none, as in [queue.Options].
const defaultQueue = "default"

// resumeHelp is part of the help of the commands that read files.
const resumeHelp = `Interrupted or failed, run the same command again: it goes on where it stopped and
enqueues nothing twice. After each batch a checkpoint is saved in Redis, under the
hash of the file's content and the queue, for 30 days: what it covers is left out.
Besides, the id of each task is derived from that hash and the line, and while
Redis has a task of an id there is no second one. The limit: if this program is
killed (kill -9, power) after a batch and before its checkpoint, and workers have
finished tasks of that batch and their retention has passed before the next run,
then these are enqueued again; the journal of the ledger, which knows the ids,
then refuses the second effect. A file with other content is another file: if
lines are added to one, all of them are enqueued.`

// An input is a source with what is needed to feed it to the queue.
type input struct {
	command string
	name    string
	queue   string
	items   source
	// content is that of a file which can be read again; zero for others,
	// which have no checkpoint.
	content content
	restart bool
	refused string // the file that lists all refused lines, "" for none
	// counts, if set, tells what has been found in an order file.
	counts func() orders.Counts
}

// list makes the file that lists all refused lines, nil if none is wanted.
func (in input) list() (*os.File, error) {
	if in.refused == "" {
		return nil, nil //nolint:nilnil // no name, no file
	}
	was, err := os.Stat(in.refused)
	source, serr := os.Stat(in.name)
	if err == nil && serr == nil && os.SameFile(was, source) {
		return nil, fmt.Errorf("--refused: want another file than the input, have %q", in.refused)
	}
	list, err := os.Create(in.refused)
	if err != nil {
		return nil, fmt.Errorf("--refused: %w", err)
	}
	return list, nil
}

// addFlags adds the flags of the commands that read files.
func (in *input) addFlags(f *pflag.FlagSet) {
	f.BoolVar(&in.restart, "restart", false, "forget the checkpoint of this file and begin at its first line")
	f.StringVar(&in.refused, "refused", "", "write all refused lines to this `file`, as JSON lines of number and reason; the report has the first 20")
}

// feed takes an input to the queue and prints the report.
func (a *app) feed(ctx context.Context, in input) (end error) {
	settings, err := a.settings()
	if err != nil {
		return err
	}
	report := &report{Source: in.name, DryRun: a.flags.dryRun}
	feeder := feeder{report: report}
	list, err := in.list()
	if err != nil {
		return err
	}
	if list != nil {
		defer func() {
			if err := list.Close(); err != nil && end == nil {
				end = fault(fmt.Errorf("--refused: %w", err))
			}
		}()
		feeder.list = list
	}
	var client redis.UniversalClient
	if !a.flags.dryRun {
		if client, err = connect(ctx, settings.Redis); err != nil {
			return fault(err)
		}
		defer client.Close()
		if feeder.client, err = queue.NewClient(client, settings.Client()); err != nil {
			return err
		}
		if in.content.hash != "" {
			feeder.mark = newCheckpoint(client, in.command, cmp.Or(in.queue, defaultQueue), in.content.hash)
		}
		if in.restart {
			if err := feeder.mark.forget(ctx); err != nil {
				return fault(err)
			}
		}
	}
	if !a.flags.quiet {
		lines := -1
		if in.content.hash != "" {
			lines = in.content.lines
		}
		feeder.bar = newProgress(a.stderr, lines)
	}
	start := time.Now()
	err = feeder.run(ctx, in.items)
	feeder.bar.end()
	if err == nil && client != nil {
		a.warnUnserved(client, feeder.queues)
	}
	if in.counts != nil {
		counts := in.counts()
		report.Orders = &counts
	}
	report.finish(time.Since(start), err)
	write := report.writeText
	if a.flags.json {
		write = report.writeJSON
	}
	if err := write(a.stdout); err != nil {
		return fault(err)
	}
	return a.verdict(in, report, err)
}

// verdict returns the error with which a run ends.
func (a *app) verdict(in input, r *report, err error) error {
	switch {
	case err != nil && a.flags.dryRun:
		return fault(err)
	case err != nil && in.content.hash != "":
		return fault(fmt.Errorf("%w; run the same command again to go on behind line %d", err, r.Through))
	case err != nil:
		return fault(fmt.Errorf("%w; all up to line %d was dealt with", err, r.Through))
	case r.Refused > 0:
		return &statusError{status: exitRefused}
	}
	return nil
}
