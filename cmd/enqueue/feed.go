package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sidingq/siding/queue"
)

// batchSize is how many tasks are enqueued between two looks at whether to go
// on, and between two checkpoints: some 10 ms on a near Redis, and what a crash
// makes the next run do again.
const batchSize = 100

// A feeder takes the items of a source to the queue, in batches.
type feeder struct {
	client *queue.Client // nil: only check
	mark   *checkpoint   // nil: none is kept
	bar    *progress
	report *report
	queues map[string]bool // the asynq queues that got tasks
	list   io.Writer       // gets all refused lines, as JSON lines; nil for none
}

// errInterrupted ends a run whose context has ended.
var errInterrupted = errors.New("interrupted")

// run takes all items to the queue, except those that an earlier run has dealt
// with by its checkpoint. It returns nil when it got to the end. The report says
// what became of the items also when it did not.
func (f *feeder) run(ctx context.Context, items source) error {
	done := 0
	if f.mark != nil {
		var err error
		if done, err = f.mark.load(ctx); err != nil {
			return fmt.Errorf("redis: %w", err)
		}
	}
	f.report.ResumedAfter, f.report.Through = done, done
	f.bar.set(done)
	var batch []item
	through := 0 // the last line that was seen
	for it, err := range items {
		if ctx.Err() != nil {
			return errInterrupted
		}
		if err != nil {
			return err
		}
		// A batch ends only between lines: a checkpoint knows nothing smaller.
		if it.pause || (len(batch) >= batchSize && it.through > through) {
			if err := f.send(ctx, batch, through); err != nil {
				return err
			}
			batch = batch[:0]
		}
		if it.pause {
			continue
		}
		through = it.through
		switch {
		case it.refused != nil:
			err = f.refuse(it.line, it.refused)
		case through <= done:
			err = f.recall(it)
		case f.client == nil:
			err = f.check(it)
			f.bar.set(through)
		default:
			batch = append(batch, it)
		}
		if err != nil {
			return err
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

// recall counts an item that an earlier run has dealt with: it was enqueued
// unless it had to be refused, and then it has to be again, so that the report
// is the same. A deadline that has passed since then is no reason.
func (f *feeder) recall(it item) error {
	opts := *it.job.Options
	opts.Deadline = time.Time{}
	if err := queue.Check(it.job.Task, &opts); err != nil {
		return f.refuse(it.line, err)
	}
	f.report.AlreadyThere++
	return nil
}

// check is what happens to an item in a dry run.
func (f *feeder) check(it item) error {
	if err := queue.Check(it.job.Task, it.job.Options); err != nil {
		return f.refuse(it.line, err)
	}
	f.report.WouldEnqueue++
	return nil
}

// refuse tells a refused line. Its error is that of the list of these.
func (f *feeder) refuse(line int, err error) error {
	// The line has its place apart; errors about lines of orders begin with it.
	one := refusal{line, strings.TrimPrefix(err.Error(), fmt.Sprintf("line %d: ", line))}
	f.report.refuse(one)
	if f.list == nil {
		return nil
	}
	if err := json.NewEncoder(f.list).Encode(one); err != nil {
		return fmt.Errorf("--refused: %w", err)
	}
	return nil
}

// send enqueues a batch, which is all that was left to do up to the line
// through, and moves the checkpoint. It does so to its end even if ctx ends.
func (f *feeder) send(ctx context.Context, batch []item, through int) error {
	if f.client == nil {
		f.report.Through = through
	}
	if through <= f.report.Through {
		return nil // nothing new
	}
	ctx = context.WithoutCancel(ctx)
	jobs := make([]queue.Job, len(batch))
	for i, it := range batch {
		jobs[i] = it.job
	}
	results, err := f.client.EnqueueBatch(ctx, jobs)
	var unlisted error
	for i, r := range results {
		switch {
		case r.Err == nil:
			f.report.Enqueued++
			if f.queues == nil {
				f.queues = make(map[string]bool)
			}
			f.queues[r.Queue] = true
		case errors.Is(r.Err, queue.ErrTaskIDConflict), errors.Is(r.Err, queue.ErrDuplicate):
			f.report.AlreadyThere++
		case err != nil && errors.Is(r.Err, err):
			// The fault itself: the item may not have been enqueued.
		default:
			unlisted = errors.Join(unlisted, f.refuse(batch[i].line, r.Err))
		}
	}
	if err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	if unlisted != nil {
		return unlisted
	}
	if f.mark != nil {
		if err := f.mark.save(ctx, through); err != nil {
			return fmt.Errorf("redis: %w", err)
		}
	}
	f.report.Through = through
	f.bar.set(through)
	return nil
}
