package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/lock"
)

// A Client enqueues tasks. It is safe for use by several goroutines.
type Client struct {
	asynq *asynq.Client
}

// NewClient returns a client on rdb, which it does not close. Set
// ContextTimeoutEnabled on rdb, so that the deadline of a context bounds calls to a
// Redis that hangs.
func NewClient(rdb redis.UniversalClient) *Client {
	return &Client{asynq: asynq.NewClientFromRedisClient(rdb)}
}

// Enqueue checks the task and its options, and stores it. A nil opts means the
// defaults. A [*TaskError], [ErrDuplicate] or [ErrTaskIDConflict] means that
// nothing was stored; after an error of Redis the task may have been, so give
// it a TaskID if it must not be stored twice by a second call.
func (c *Client) Enqueue(ctx context.Context, t Task, opts *Options) (Receipt, error) {
	task, options, err := prepare(t, opts, time.Now())
	if err != nil {
		return Receipt{}, err
	}
	return c.send(ctx, task, options)
}

func (c *Client) send(ctx context.Context, task *asynq.Task, options []asynq.Option) (Receipt, error) {
	info, err := c.asynq.EnqueueContext(ctx, task, options...)
	switch {
	case errors.Is(err, asynq.ErrDuplicateTask):
		return Receipt{}, fmt.Errorf("%s: %w", task.Type(), ErrDuplicate)
	case errors.Is(err, asynq.ErrTaskIDConflict):
		return Receipt{}, fmt.Errorf("%s: %w", task.Type(), ErrTaskIDConflict)
	case err != nil:
		return Receipt{}, fmt.Errorf("queue: enqueue %s: %w", task.Type(), err)
	}
	return Receipt{ID: info.ID, Queue: info.Queue}, nil
}

// Check returns the error with which [Client.Enqueue] would refuse the task
// without asking Redis, nil when it would not.
func Check(t Task, opts *Options) error {
	_, _, err := prepare(t, opts, time.Now())
	return err
}

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

// EnqueueBatch enqueues jobs in order and answers each at its index; one that
// is refused does not stop the rest. Its own error is a fault of Redis or the
// end of ctx; the jobs from there on have that error as theirs.
func (c *Client) EnqueueBatch(ctx context.Context, jobs []Job) ([]Result, error) {
	results := make([]Result, len(jobs))
	for i, job := range jobs {
		task, options, err := prepare(job.Task, job.Options, time.Now())
		if err != nil {
			results[i].Err = err
			continue
		}
		if err = ctx.Err(); err == nil {
			results[i].Receipt, err = c.send(ctx, task, options)
		}
		results[i].Err = err
		if err != nil && !errors.Is(err, ErrDuplicate) && !errors.Is(err, ErrTaskIDConflict) {
			for j := i + 1; j < len(jobs); j++ {
				results[j].Err = err
			}
			return results, err
		}
	}
	return results, nil
}

// prepare checks everything that can be checked without Redis.
func prepare(t Task, opts *Options, now time.Time) (*asynq.Task, []asynq.Option, error) {
	payload, resource, err := encode(t)
	if err != nil {
		return nil, nil, err
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	options, err := o.asynq(t.Kind(), now)
	if err != nil {
		return nil, nil, err
	}
	var headers map[string]string
	if _, guarded := t.(Guarded); guarded {
		if err := lock.CheckResource(resource); err != nil {
			return nil, nil, &TaskError{Kind: t.Kind(), Field: "resource", Want: err.Error()}
		}
		headers = map[string]string{HeaderResource: resource}
	}
	return asynq.NewTaskWithHeaders(t.Kind(), payload, headers), options, nil
}

// maxName bounds the names of queues and ids of tasks, in bytes.
const maxName = 256

// asynq checks the options and translates them.
func (o Options) asynq(kind string, now time.Time) ([]asynq.Option, error) {
	fail := func(field, want string, have any) error {
		return &TaskError{Kind: kind, Field: field, Want: want, Value: clip(fmt.Sprint(have))}
	}
	var opts []asynq.Option
	for _, name := range []struct {
		field, value string
		option       func(string) asynq.Option
	}{{"queue", o.Queue, asynq.Queue}, {"task id", o.TaskID, asynq.TaskID}} {
		if name.value == "" {
			continue
		}
		if len(name.value) > maxName || strings.TrimSpace(name.value) == "" || strings.ContainsAny(name.value, "{}") || strings.ContainsFunc(name.value, unicode.IsControl) {
			return nil, fail(name.field, fmt.Sprintf("want 1 to %d bytes, not blank, without braces and control characters", maxName), name.value)
		}
		opts = append(opts, name.option(name.value))
	}
	for _, d := range []struct {
		field  string
		value  time.Duration
		option func(time.Duration) asynq.Option
	}{{"unique for", o.UniqueFor, asynq.Unique}, {"timeout", o.Timeout, asynq.Timeout}, {"retention", o.Retention, asynq.Retention}} {
		if d.value == 0 {
			continue
		}
		if d.value < 0 || d.value%time.Second != 0 {
			return nil, fail(d.field, "want whole seconds, 1 or more", d.value)
		}
		opts = append(opts, d.option(d.value))
	}
	switch {
	case o.Retries < NoRetries:
		return nil, fail("retries", "want 0 or more, or -1 for none", o.Retries)
	case o.Retries == NoRetries:
		opts = append(opts, asynq.MaxRetry(0))
	case o.Retries > 0:
		opts = append(opts, asynq.MaxRetry(o.Retries))
	}
	if !o.Deadline.IsZero() {
		if !o.Deadline.After(now) {
			return nil, fail("deadline", "want a time to come", o.Deadline.Format(time.RFC3339))
		}
		opts = append(opts, asynq.Deadline(wholeSecond(o.Deadline)))
	}
	switch {
	case o.Delay < 0:
		return nil, fail("delay", "want 0 or more", o.Delay)
	case o.Delay > 0 && !o.At.IsZero():
		return nil, fail("delay", "want either a delay or a time, not both", o.Delay)
	case o.Delay > 0:
		opts = append(opts, asynq.ProcessAt(wholeSecond(now.Add(o.Delay))))
	case o.At.After(now):
		opts = append(opts, asynq.ProcessAt(wholeSecond(o.At)))
	}
	return opts, nil
}

// wholeSecond rounds up: asynq cuts off fractions, which would run the task, or
// give it up, too early.
func wholeSecond(t time.Time) time.Time {
	return t.Add(time.Second - 1).Truncate(time.Second)
}
