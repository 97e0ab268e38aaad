package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/cli"
	"github.com/sidingq/siding/internal/config"
	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/tasks/orders"
)

// batchSize is how many tasks are enqueued between two checkpoints: some 10 ms on
// a near Redis. After a crash the next run repeats so many.
const batchSize = 100

// A source yields the jobs of its input in order. A pair with an [*orders.LineError] refuses a line;
// one with another error is a fault of the input, and the last. An empty pair says that the next job
// may take a while.
type source = iter.Seq2[orders.Job, error]

// feed takes an input to the queue and prints the report.
func (a *app) feed(ctx context.Context, in input) error {
	settings, err := a.settings()
	if err != nil {
		return err
	}
	report := &report{Source: in.name, DryRun: a.flags.dryRun}
	feeder := feeder{config: settings.Client(), redis: settings.Redis, report: report, queues: make(map[string]bool)}
	var client redis.UniversalClient
	if !a.flags.dryRun {
		if client, err = cli.Connect(ctx, settings, "enqueue", "worker"); err != nil {
			return err
		}
		defer client.Close()
		if feeder.client, err = queue.NewClient(client, feeder.config); err != nil {
			return err
		}
		if in.content.hash != "" {
			feeder.mark = newCheckpoint(client, in.command, cmp.Or(in.queue, defaultQueue), in.content.hash)
		}
	}
	if in.restart && client != nil {
		if err := feeder.mark.forget(ctx); err != nil {
			return cli.Fault(settings.Redis.Failed("", err))
		}
	}
	if !a.flags.quiet {
		feeder.line, feeder.lines = cli.NewLine(a.stderr), in.content.lines
	}
	start := time.Now()
	err = feeder.run(ctx, in.jobs)
	feeder.line.Wipe()
	report.Seconds = time.Since(start).Seconds()
	if err == nil && client != nil {
		a.warnUnserved(client, feeder.queues)
	}
	if err != nil {
		report.Error = err.Error()
	}
	if in.counts != nil {
		counts := in.counts()
		report.Orders = &counts
	}
	if err := report.write(a.stdout, a.flags.json); err != nil {
		return cli.Fault(err)
	}
	return verdict(in, report, err)
}

// verdict returns the error with which a run ends.
func verdict(in input, r *report, err error) error {
	switch {
	case err == nil && r.Refused > 0:
		return refused(nil)
	case err == nil:
		return nil
	case r.DryRun:
		return cli.Fault(err)
	case errors.Is(err, errChanged):
		return cli.Fault(fmt.Errorf("%w; all up to line %d is enqueued as it was, and another run enqueues all lines anew", err, r.Through))
	case in.restart: // which would begin anew
		return cli.Fault(fmt.Errorf("%w; run the same command without --restart to go on behind line %d", err, r.Through))
	case in.content.hash != "":
		return cli.Fault(fmt.Errorf("%w; run the same command again to go on behind line %d", err, r.Through))
	default:
		return cli.Fault(fmt.Errorf("%w; all up to line %d is done", err, r.Through))
	}
}

// A feeder takes the jobs of a source to the queue, in batches.
type feeder struct {
	config queue.ClientConfig
	redis  config.Redis
	client *queue.Client // nil: only check
	mark   *checkpoint   // nil: none is kept
	line   *cli.Line
	lines  int // of the input; 0 if that is not known
	report *report
	queues map[string]bool // the asynq queues that got tasks
}

// An item of a batch is a job, or a line that is refused already.
type item struct {
	orders.Job

	refused error
}

// run takes all jobs to the queue, except those that the checkpoint covers. The result is nil at
// the end of the jobs. The report is complete after an error, too.
func (f *feeder) run(ctx context.Context, jobs source) error {
	done := 0
	if f.mark != nil {
		var err error
		if done, err = f.mark.load(ctx); err != nil {
			return f.redis.Failed("", err)
		}
	}
	f.report.ResumedAfter, f.report.Through = done, done
	f.show(done)
	var batch []item
	through := 0 // the last line that was read
	for job, err := range jobs {
		if ctx.Err() != nil {
			return errInterrupted
		}
		_, refused := errors.AsType[*orders.LineError](err)
		if err != nil && !refused {
			return err
		}
		pause := err == nil && job.Task == nil
		// A batch ends only between lines, as a checkpoint knows nothing smaller.
		if pause || len(batch) >= batchSize && job.Through > through {
			if err := f.send(ctx, batch, through); err != nil {
				return err
			}
			batch = batch[:0]
		}
		if pause {
			continue
		}
		through = job.Through
		again := through <= done
		if !refused && (again || f.client == nil) {
			err = f.check(job.Job, again)
		}
		switch {
		case err != nil && len(batch) == 0:
			f.report.refuse(job.Line, err)
		case err != nil: // after those before it, of which the queue may refuse some
			batch = append(batch, item{job, err})
		case again:
			f.report.AlreadyThere++
		case f.client == nil:
			f.report.WouldEnqueue++
			f.report.Through = through
			f.show(through)
		default:
			batch = append(batch, item{job, nil})
		}
	}
	if ctx.Err() != nil {
		return errInterrupted
	}
	if err := f.send(ctx, batch, through); err != nil {
		return err
	}
	f.report.Complete = true
	return nil
}

// show shows that the lines up to this one are done.
func (f *feeder) show(line int) {
	if f.lines == 0 {
		f.line.Show("%d lines", line)
		return
	}
	line = min(line, f.lines) // a last one without a line end is beyond the count
	f.line.Show("%d of %d lines, %d %%", line, f.lines, 100*line/f.lines)
}

// check refuses a job as the queue does. A job that an earlier run has enqueued
// may be past its deadline.
func (f *feeder) check(job queue.Job, again bool) error {
	opts := *job.Options
	if again {
		opts.Deadline = time.Time{}
	}
	return f.config.Check(job.Task, &opts)
}

// send enqueues a batch, the last tasks up to the line through, and moves the checkpoint. send goes
// on to its end even if ctx ends.
func (f *feeder) send(ctx context.Context, batch []item, through int) error {
	if f.client == nil || through <= f.report.Through {
		f.report.Through = max(through, f.report.Through)
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	var jobs []queue.Job
	for _, it := range batch {
		if it.refused == nil {
			jobs = append(jobs, it.Job.Job)
		}
	}
	results, err := f.client.EnqueueBatch(ctx, jobs)
	for _, it := range batch {
		if it.refused != nil {
			f.report.refuse(it.Line, it.refused)
			continue
		}
		r := results[0]
		results = results[1:]
		switch {
		case r.Err == nil:
			f.report.Enqueued++
			if r.Replaced != "" {
				f.report.Replaced++
			}
			f.queues[r.Queue] = true
		case errors.Is(r.Err, queue.ErrTaskIDConflict), errors.Is(r.Err, queue.ErrDuplicate):
			f.report.AlreadyThere++
		case err == nil || !errors.Is(r.Err, err): // after a fault nobody knows whether Redis has the task
			f.report.refuse(it.Line, r.Err)
		}
	}
	if err == nil && f.mark != nil {
		err = f.mark.save(ctx, through)
	}
	if err != nil {
		return f.redis.Failed("", err)
	}
	f.report.Through = through
	f.show(through)
	return nil
}
