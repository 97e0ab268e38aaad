package queue

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/hook"
)

// A Job is one task of [Client.EnqueueBatch] with its options. Nil options mean the defaults.
type Job struct {
	Task    Task
	Options *Options
}

// A Result is what became of one [Job]: a receipt, or the error that refused the task.
type Result struct {
	Receipt

	Err error
}

// EnqueueBatch enqueues jobs in their order, hundreds in one round trip. The results have the
// indexes of their jobs. A job that is refused does not stop the others.
//
// The error is that of Redis or of ctx. Each job that may not have been stored has the same error.
// Some of these jobs may have been stored all the same, as after [Client.Enqueue].
func (c *Client) EnqueueBatch(ctx context.Context, jobs []Job) ([]Result, error) {
	results := make([]Result, len(jobs))
	if err := checkContext(ctx); err != nil {
		for i := range results {
			results[i].Err = err
		}
		return results, err
	}
	b := &batch{conn: c.conn.Batch()}
	client := asynq.NewClientFromRedisClient(b.conn)
	for i, job := range jobs {
		r := &results[i]
		if b.fault != nil {
			r.Err = b.fault
			continue
		}
		var p *prepared
		if p, r.Err = c.shards.prepare(job.Task, job.Options, time.Now(), uuid.NewString()); r.Err != nil {
			continue
		}
		err := ctx.Err()
		if err == nil {
			_, err = client.EnqueueContext(p.once(ctx), p.task)
		}
		if err != nil { // asynq sends the name of a new queue by itself
			_, r.Err = p.outcome(err)
			b.fault = r.Err
		} else {
			b.gathered = append(b.gathered, gathered{p, r})
		}
		if b.conn.Full() || b.fault != nil {
			b.send(ctx)
		}
	}
	b.send(ctx)
	return results, b.fault
}

// A batch gathers jobs and sends them together.
type batch struct {
	conn     *hook.Batch
	gathered []gathered // not sent yet
	fault    error      // the first error of Redis
}

// A gathered task and its result.
type gathered struct {
	*prepared

	result *Result
}

// send sends what was gathered.
func (b *batch) send(ctx context.Context) {
	for k, err := range b.conn.Send(ctx) {
		r := b.gathered[k].result
		r.Receipt, r.Err = b.gathered[k].outcome(err)
		if r.Err != nil && !errors.Is(r.Err, ErrDuplicate) && !errors.Is(r.Err, ErrTaskIDConflict) {
			b.fault = cmp.Or(b.fault, r.Err)
			r.Err = b.fault
		}
	}
	b.gathered = nil
}
