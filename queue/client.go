package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/hook"
	"github.com/sidingq/siding/internal/store"
)

// ClientConfig configures a [Client]. The zero value works.
type ClientConfig struct {
	// Shards says over how many asynq queues, 1 to [MaxShards], each of these queues is spread.
	// Clients and servers need the same, see [ServerConfig].
	Shards map[string]int
}

// Validate returns an error that names the first field that cannot work.
func (c ClientConfig) Validate() error { return checkShards(nil, c.Shards) }

// A Client enqueues tasks, and notifies idle servers of them. A Client is safe for use by several
// goroutines.
type Client struct {
	conn   *hook.NotifyingConn
	asynq  *asynq.Client // on conn
	shards sharding
}

// NewClient returns a client on rdb, which the caller closes. Make rdb by [Redis], or set
// ContextTimeoutEnabled on rdb. Then the deadline of a context bounds calls to a Redis that hangs.
func NewClient(rdb redis.UniversalClient, cfg ClientConfig) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := checkClient(rdb); err != nil {
		return nil, err
	}
	conn := hook.NewNotifyingConn(rdb)
	return &Client{conn: conn, asynq: asynq.NewClientFromRedisClient(conn), shards: newSharding(cfg.Shards)}, nil
}

// Enqueue checks the task and its options, and stores the task. Nil opts mean the defaults. After a
// [*TaskError], [ErrDuplicate] or [ErrTaskIDConflict] this call has stored nothing. After an error
// of Redis the call may have stored the task. Give the task a TaskID if a second call must not
// store the task twice.
//
// If the answer of Redis is lost, the client sends the call again and reports success. If the task
// has run and is gone by then, the second call stores the task once more, and the task runs again.
func (c *Client) Enqueue(ctx context.Context, t Task, opts *Options) (Receipt, error) {
	if err := checkContext(ctx); err != nil {
		return Receipt{}, err
	}
	p, err := c.shards.prepare(t, opts, time.Now(), uuid.NewString())
	if err != nil {
		return Receipt{}, err
	}
	_, err = c.asynq.EnqueueContext(p.once(ctx), p.task)
	return p.outcome(err)
}

// NewTask checks the task and its options, and returns them as a task for asynq's own Scheduler,
// PeriodicTaskManager or Client. Give those a connection by [NotifyingConn]. opts must have no
// Delay, At and Deadline, as asynq may enqueue the task at any time, and more than once. Without a
// TaskID asynq chooses one each time.
func (c *Client) NewTask(t Task, opts *Options) (*asynq.Task, error) {
	p, err := c.shards.prepare(t, opts, time.Now(), "")
	if err != nil {
		return nil, err
	}
	if opts != nil && (opts.Delay != 0 || !opts.At.IsZero() || !opts.Deadline.IsZero()) {
		return nil, &TaskError{Kind: t.Kind(), Field: "delay, at, deadline", Want: "want none of them here: give ProcessIn, ProcessAt or Deadline to the call of asynq that enqueues the task"}
	}
	return p.task, nil
}

// Check returns the error with which [Client.Enqueue] would refuse the task before a call to Redis,
// or nil. Check knows nothing of shards.
func Check(t Task, opts *Options) error {
	_, err := sharding(nil).prepare(t, opts, time.Now(), "")
	return err
}

// A prepared task is ready to be given to asynq.
type prepared struct {
	task    *asynq.Task // with its options
	receipt Receipt
	named   bool // the caller chose its id
	unique  bool // it has UniqueFor
}

// once returns the context for the call that stores the task. Only a task with an id of the
// caller's or with UniqueFor can find another one in its way.
func (p *prepared) once(ctx context.Context) context.Context {
	if p.named || p.unique {
		return hook.Once(ctx)
	}
	return ctx
}

// outcome returns what has become of the task, by the error of asynq.
func (p *prepared) outcome(err error) (Receipt, error) {
	switch {
	case errors.Is(err, asynq.ErrTaskIDConflict) && !p.named:
		// No other task has this id: an earlier call stored the task, and its answer was
		// lost.
	case errors.Is(err, asynq.ErrDuplicateTask):
		return Receipt{}, fmt.Errorf("%s: %w", p.task.Type(), ErrDuplicate)
	case errors.Is(err, asynq.ErrTaskIDConflict):
		return Receipt{}, fmt.Errorf("%s: %w: %q in the queue %q", p.task.Type(), ErrTaskIDConflict, p.receipt.ID, p.receipt.Queue)
	case err != nil:
		return Receipt{}, fmt.Errorf("queue: enqueue %s: %w", p.task.Type(), err)
	}
	return p.receipt, nil
}

// prepare checks all that needs no Redis. A task without a TaskID gets id.
func (s sharding) prepare(t Task, opts *Options, now time.Time, id string) (*prepared, error) {
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
	o.TaskID = cmp.Or(o.TaskID, id)
	options, err := o.asynq(t.Kind(), now)
	if err != nil {
		return nil, err
	}
	headers, err := o.headers(t.Kind(), MaxPayload-len(payload))
	if err != nil {
		return nil, err
	}
	if _, guarded := t.(Guarded); guarded {
		if err := store.CheckResource(resource); err != nil {
			return nil, &TaskError{Kind: t.Kind(), Field: "resource", Want: err.Error()}
		}
		headers[HeaderResource] = resource
	}
	if err := o.waits(t.Kind(), resource != "", headers); err != nil {
		return nil, err
	}
	task := asynq.NewTaskWithHeaders(t.Kind(), payload, headers, slices.Clip(options)...)
	return &prepared{task, Receipt{o.TaskID, o.Queue}, named, o.UniqueFor > 0}, nil
}

// waits checks what o says of the wait for the task's resource, and adds that to the headers.
func (o Options) waits(kind string, guarded bool, headers map[string]string) error {
	switch {
	case o.Priority < 0 || o.Priority > MaxPriority:
		return &TaskError{Kind: kind, Field: "priority", Want: fmt.Sprintf("want 0 to %d", MaxPriority), Value: strconv.Itoa(o.Priority)}
	case o.Priority > 0 && !guarded:
		return &TaskError{Kind: kind, Field: "priority", Want: "want none for a task without a resource", Value: strconv.Itoa(o.Priority)}
	case o.Priority > 0:
		headers[HeaderPriority] = strconv.Itoa(o.Priority)
	}
	if o.Policy == nil {
		return nil
	}
	if !guarded {
		return &TaskError{Kind: kind, Field: "policy", Want: "want none for a task without a resource"}
	}
	if field, want, have := o.Policy.check(); field != "" {
		return &TaskError{Kind: kind, Field: "policy: " + field, Want: want, Value: clip(fmt.Sprint(have))}
	}
	headers[HeaderPolicy] = o.Policy.text()
	return nil
}

// headers checks the headers, which may have so many bytes, and returns a copy of them.
func (o Options) headers(kind string, room int) (map[string]string, error) {
	all := make(map[string]string, len(o.Headers)+1)
	for _, name := range slices.Sorted(maps.Keys(o.Headers)) {
		value := o.Headers[name]
		want := ""
		switch room -= len(name) + len(value); {
		case name == "" || strings.HasPrefix(name, headerPrefix):
			want = "want names that are not empty and do not begin with " + headerPrefix
		case !utf8.ValidString(name) || !utf8.ValidString(value):
			want = "want UTF-8"
		case room < 0:
			want = fmt.Sprintf("want at most %d bytes with the payload", MaxPayload)
		}
		if want != "" {
			return nil, &TaskError{Kind: kind, Field: "headers", Want: want, Value: clip(name)}
		}
		all[name] = value
	}
	return all, nil
}

// asynq checks the options and returns them as asynq's.
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
		if want := wantName(name.value, maxName); want != "" {
			return nil, fail(name.field, "want "+want, name.value)
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
	case o.Retries != 0:
		opts = append(opts, asynq.MaxRetry(max(o.Retries, 0))) // NoRetries is below 0
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

// wholeSecond rounds up. asynq cuts off fractions, and so would run the task, or end it, too early.
func wholeSecond(t time.Time) time.Time {
	return t.Add(time.Second - 1).Truncate(time.Second)
}
