package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/lock"
)

// ClientConfig configures a [Client]. The zero value works.
type ClientConfig struct {
	// Shards says over how many asynq queues (1 to [MaxShards]) a queue is
	// spread, by its name. It has to be that of the servers, see [ServerConfig].
	Shards map[string]int
}

// Validate returns an error that names the first field that cannot work.
func (c ClientConfig) Validate() error { return checkShards(nil, c.Shards) }

// A Client enqueues tasks. It is safe for use by several goroutines.
type Client struct {
	ringer *asynqredis.Ringer
	asynq  *asynq.Client // on ringer
	shards sharding
}

// NewClient checks the configuration and returns a client on rdb, which it does not
// close. Make rdb with [Redis], or set ContextTimeoutEnabled on it, so that the deadline of
// a context bounds calls to a Redis that hangs.
func NewClient(rdb redis.UniversalClient, cfg ClientConfig) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if isRing(rdb) {
		return nil, errRing
	}
	ringer := asynqredis.NewRinger(rdb)
	return &Client{ringer: ringer, asynq: asynq.NewClientFromRedisClient(ringer), shards: newSharding(cfg.Shards)}, nil
}

// Enqueue checks the task and its options, and stores it. A nil opts means the
// defaults. A [*TaskError], [ErrDuplicate] or [ErrTaskIDConflict] means that
// this call stored nothing; after an error of Redis it may have, so give
// the task a TaskID if it must not be stored twice by a second call. A call whose answer was lost,
// and which the client has sent again, reports success; should the task have run and be gone by
// then, it is stored, and runs, once more.
func (c *Client) Enqueue(ctx context.Context, t Task, opts *Options) (Receipt, error) {
	p, err := c.shards.prepare(t, opts, time.Now())
	if err != nil {
		return Receipt{}, err
	}
	_, err = c.asynq.EnqueueContext(p.once(ctx), p.task, p.options...)
	return p.outcome(err)
}

// Check returns the error with which [Client.Enqueue] would refuse the task
// without asking Redis, nil when it would not. It knows of no shards.
func Check(t Task, opts *Options) error {
	_, err := sharding(nil).prepare(t, opts, time.Now())
	return err
}

// A prepared task is ready to be given to asynq.
type prepared struct {
	task    *asynq.Task
	options []asynq.Option
	receipt Receipt
	named   bool // its id was chosen by the caller
	unique  bool // its like may be refused
}

// once returns the context for the call that stores the task. Without an id of the caller's and
// without uniqueness no other task is in its way.
func (p *prepared) once(ctx context.Context) context.Context {
	if p.named || p.unique {
		return asynqredis.Once(ctx)
	}
	return ctx
}

// outcome says what has become of the task, given asynq's word on it.
func (p *prepared) outcome(err error) (Receipt, error) {
	switch {
	case errors.Is(err, asynq.ErrTaskIDConflict) && !p.named:
		// Nobody else has this id: the answer to an earlier call was lost, and it was sent again.
	case errors.Is(err, asynq.ErrDuplicateTask):
		return Receipt{}, fmt.Errorf("%s: %w", p.task.Type(), ErrDuplicate)
	case errors.Is(err, asynq.ErrTaskIDConflict):
		return Receipt{}, fmt.Errorf("%s: %w: %q in the queue %q", p.task.Type(), ErrTaskIDConflict, p.receipt.ID, p.receipt.Queue)
	case err != nil:
		return Receipt{}, fmt.Errorf("queue: enqueue %s: %w", p.task.Type(), err)
	}
	return p.receipt, nil
}

// prepare checks everything that can be checked without Redis.
func (s sharding) prepare(t Task, opts *Options, now time.Time) (*prepared, error) {
	payload, resource, err := encode(t)
	if err != nil {
		return nil, err
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	if queue, ok := queueOfShard(o.Queue); ok && len(s[queue]) > 0 {
		return nil, &TaskError{Kind: t.Kind(), Field: "queue", Want: "want " + queue + ", not one of its shards", Value: o.Queue}
	}
	o.Queue = s.shardOf(cmp.Or(o.Queue, "default"), shardKey(resource, t.Kind(), payload, o))
	named := o.TaskID != ""
	if !named {
		o.TaskID = uuid.NewString()
	}
	options, err := o.asynq(t.Kind(), now)
	if err != nil {
		return nil, err
	}
	var headers map[string]string
	if _, guarded := t.(Guarded); guarded {
		if err := lock.CheckResource(resource); err != nil {
			return nil, &TaskError{Kind: t.Kind(), Field: "resource", Want: err.Error()}
		}
		headers = map[string]string{HeaderResource: resource}
	}
	return &prepared{asynq.NewTaskWithHeaders(t.Kind(), payload, headers), options, Receipt{o.TaskID, o.Queue}, named, o.UniqueFor > 0}, nil
}

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
		if badName(name.value, maxName) {
			return nil, fail(name.field, "want "+wantName(maxName), name.value)
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
	case o.Retries < NoRetries || o.Retries > math.MaxInt32: // asynq keeps 32 bits
		return nil, fail("retries", fmt.Sprintf("want 0 to %d, or -1 for none", math.MaxInt32), o.Retries)
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
