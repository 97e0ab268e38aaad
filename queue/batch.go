package queue

import (
	"cmp"
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/sidingq/siding/internal/taskredis"
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
	var tasks []*taskredis.Enqueue
	var of []int // the jobs of those
	for i, job := range jobs {
		e, err := c.shards.prepare(job.Task, job.Options, time.Now(), uuid.NewString())
		if err != nil {
			results[i].Err = err
			continue
		}
		tasks, of = append(tasks, e), append(of, i)
	}
	var fault error
	for i, err := range c.enqueuer.EnqueueAll(ctx, tasks) {
		r := &results[of[i]]
		r.Receipt, r.Err = outcome(tasks[i], err)
		if taskredis.IsFault(err) {
			fault = cmp.Or(fault, r.Err)
			r.Err = fault
		}
	}
	return results, fault
}
