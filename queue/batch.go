package queue

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/asynqredis"
)

// A Job is one task of a batch with its options; nil options mean the defaults.
type Job struct {
	Task    Task
	Options *Options
}

// A Result is what became of one job of a batch: a receipt, or the error that
// refused it.
type Result struct {
	Receipt

	Err error
}

// EnqueueBatch enqueues jobs in order, hundreds in one round trip, and answers each at its
// index; one that is refused does not stop the rest. Its own error is a fault of Redis or
// the end of ctx. Jobs that may not have been stored for it have it as theirs; of those
// that were on their way just then some may have been stored all the same, as after
// [Client.Enqueue].
func (c *Client) EnqueueBatch(ctx context.Context, jobs []Job) ([]Result, error) {
	b := &batch{results: make([]Result, len(jobs)), conn: c.ringer.Batch()}
	client := asynq.NewClientFromRedisClient(b.conn)
	for i, job := range jobs {
		p, err := c.shards.prepare(job.Task, job.Options, time.Now())
		if err != nil {
			b.results[i].Err = err
			continue
		}
		err = ctx.Err()
		if err == nil {
			_, err = client.EnqueueContext(p.once(ctx), p.task, p.options...)
		}
		if err != nil { // asynq names the queue to Redis at once
			_, b.fault = p.outcome(err)
		} else {
			b.jobs, b.indices = append(b.jobs, p), append(b.indices, i)
		}
		if b.conn.Full() || b.fault != nil {
			b.send(ctx)
		}
		if b.fault != nil {
			for j := i; j < len(jobs); j++ {
				if r := &b.results[j]; r.Err == nil && r.ID == "" {
					r.Err = b.fault
				}
			}
			return b.results, b.fault
		}
	}
	b.send(ctx)
	return b.results, b.fault
}

// A batch is a part of the jobs on their way.
type batch struct {
	results []Result
	conn    *asynqredis.Batch
	jobs    []*prepared // gathered and not sent yet
	indices []int       // theirs
	fault   error       // the first of Redis
}

// send sends what was gathered.
func (b *batch) send(ctx context.Context) {
	for k, err := range b.conn.Send(ctx) {
		r := &b.results[b.indices[k]]
		r.Receipt, r.Err = b.jobs[k].outcome(err)
		if r.Err != nil && !errors.Is(r.Err, ErrDuplicate) && !errors.Is(r.Err, ErrTaskIDConflict) {
			b.fault = cmp.Or(b.fault, r.Err)
			r.Err = b.fault
		}
	}
	b.jobs, b.indices = nil, nil
}
