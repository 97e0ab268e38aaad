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

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/taskredis"
)

// ClientConfig configures a [Client]. The zero value works.
type ClientConfig struct {
	// Shards says over how many asynq queues, 1 to [MaxShards], each of these queues is spread.
	// Clients and servers need the same, see [ServerConfig].
	Shards map[string]int
}

// Validate returns an error that names the first field that cannot work.
func (c ClientConfig) Validate() error { return checkShards(nil, c.Shards) }

// Check returns the error with which [Client.Enqueue] of such a client would refuse the task before a
// call to Redis, or with which there could be no such client, or nil.
func (c ClientConfig) Check(t Task, opts *Options) error {
	if err := c.Validate(); err != nil {
		return err
	}
	_, err := sharding{numbers: c.Shards}.prepare(t, opts, time.Now(), "")
	return err
}

// A Client enqueues tasks, and wakes idle servers for them. A Client is safe for use by several
// goroutines.
type Client struct {
	enqueuer *taskredis.Enqueuer
	shards   sharding
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
	return &Client{enqueuer: taskredis.NewEnqueuer(rdb), shards: newSharding(cfg.Shards)}, nil
}

// Enqueue checks the task and its options, and stores the task. Nil opts mean the defaults. After a
// [*TaskError], [ErrDuplicate] or [ErrTaskIDConflict] this call has stored nothing. After an error
// of Redis the call may have stored the task. Give the task a TaskID if a second call must not
// store the task twice.
//
// If the answer of Redis is lost, the client sends the call again and reports success. If the task
// has run and is gone by then, the second call stores the task once more, and the task runs again. With
// [Options.Debounce] that is so only if another task with this Debounce has come in between.
func (c *Client) Enqueue(ctx context.Context, t Task, opts *Options) (Receipt, error) {
	if err := checkContext(ctx); err != nil {
		return Receipt{}, err
	}
	e, err := c.shards.prepare(t, opts, time.Now(), uuid.NewString())
	if err != nil {
		return Receipt{}, err
	}
	return outcome(e, c.enqueuer.Enqueue(ctx, e))
}

// NewTask checks the task and its options, and returns them as a task for asynq's own Scheduler,
// PeriodicTaskManager or Client. opts must have no Delay, At, Deadline and Debounce, as asynq may
// enqueue the task at any time, and more than once. Without a TaskID asynq chooses one each time. An idle server
// finds such a task within some 50 ms, as asynq's clients wake nobody. They do not see that an operator
// has archived a task with Unique, and refuse equal ones for as long as it is archived: give a task that
// comes again and again UniqueFor. A PeriodicTaskManager takes tasks of the same schedule, kind, payload and
// Opts of its config for the same: name the queue, and what else may change, in these Opts, too.
func (c *Client) NewTask(t Task, opts *Options) (*asynq.Task, error) {
	e, err := c.shards.prepare(t, opts, time.Now(), "")
	if err != nil {
		return nil, err
	}
	o := cmp.Or(opts, &Options{})
	if o.Debounce != "" {
		return nil, &TaskError{Kind: t.Kind(), Field: "debounce", Want: "want none here, as asynq's clients do not know it", Value: clip(o.Debounce)}
	}
	if o.Delay != 0 || !o.At.IsZero() || !o.Deadline.IsZero() {
		return nil, &TaskError{Kind: t.Kind(), Field: "delay, at, deadline", Want: "want none of them here: give ProcessIn, ProcessAt or Deadline to the call of asynq that enqueues the task"}
	}
	m := e.Message
	given := []asynq.Option{asynq.Queue(m.Queue)}
	if m.ID != "" {
		given = append(given, asynq.TaskID(m.ID))
	}
	if e.Unique > 0 {
		given = append(given, asynq.Unique(e.Unique))
	}
	if o.Timeout > 0 {
		given = append(given, asynq.Timeout(o.Timeout))
	}
	if o.Retention > 0 {
		given = append(given, asynq.Retention(o.Retention))
	}
	if o.Retries != 0 {
		given = append(given, asynq.MaxRetry(m.Retry))
	}
	return asynq.NewTaskWithHeaders(m.Type, m.Payload, m.Headers, slices.Clip(given)...), nil // asynq's clients append to them
}

// outcome returns what has become of a task, by the error of the enqueuer.
func outcome(e *taskredis.Enqueue, err error) (Receipt, error) {
	m := e.Message
	switch {
	case errors.Is(err, taskredis.ErrDuplicate):
		return Receipt{}, fmt.Errorf("%s: %w", m.Type, ErrDuplicate)
	case errors.Is(err, taskredis.ErrIDConflict):
		return Receipt{}, fmt.Errorf("%s: %w: %q in the queue %q", m.Type, ErrTaskIDConflict, m.ID, m.Queue)
	case err != nil:
		return Receipt{}, fmt.Errorf("queue: enqueue %s: %w", m.Type, err)
	}
	return Receipt{m.ID, m.Queue, e.Replaced}, nil
}

// prepare checks all that needs no Redis, and returns the task as it is to be stored. One without a TaskID gets id.
func (s sharding) prepare(t Task, opts *Options, now time.Time, id string) (*taskredis.Enqueue, error) {
	payload, resource, err := encode(t)
	if err != nil {
		return nil, err
	}
	o := *cmp.Or(opts, &Options{})
	if queue, ok := queueOfShard(o.Queue); ok && s.numbers[queue] > 0 {
		return nil, &TaskError{Kind: t.Kind(), Field: "queue", Want: "want " + queue + ", not one of its shards", Value: o.Queue}
	}
	named, queue := o.TaskID != "", cmp.Or(o.Queue, "default")
	o.Queue = s.shardOf(queue, shardKey(resource, t.Kind(), payload, o))
	if err := o.debounced(t.Kind()); err != nil {
		return nil, err
	}
	o.TaskID = cmp.Or(o.TaskID, id)
	if err := o.check(t.Kind(), now); err != nil {
		return nil, err
	}
	headers, err := o.headers(t.Kind(), MaxPayload-len(payload))
	if err != nil {
		return nil, err
	}
	if _, guarded := t.(Guarded); guarded {
		if resource, err = store.CheckResources(resource); err != nil {
			return nil, &TaskError{Kind: t.Kind(), Field: "resource", Want: err.Error(), Err: err}
		}
		headers[HeaderResource] = resource
	}
	switch {
	case o.Unique:
		headers[HeaderUnique] = taskredis.Unfinished
	case o.UniqueFor != 0:
		headers[HeaderUnique] = taskredis.Always
	}
	if err := o.waits(t.Kind(), resource != "", headers); err != nil {
		return nil, err
	}
	if several := len(store.Names(resource)) > 1; several && o.Policy != nil && o.Policy.compares() {
		return nil, &TaskError{Kind: t.Kind(), Field: "policy", Want: noComparison}
	} else if several && s.numbers[queue] > 0 {
		return nil, &TaskError{Kind: t.Kind(), Field: "queue", Want: "want one without shards for a task of several resources", Value: queue}
	}
	return &taskredis.Enqueue{
		Message: o.message(t.Kind(), payload, headers), At: o.at(now), Unique: o.unique(), Always: o.UniqueFor != 0, OwnID: !named,
		Debounce: o.Debounce, Delay: o.Delay, MaxDelay: o.MaxDelay,
		Resource: resource, Priority: o.Priority, HasPolicy: o.Policy != nil && !o.Policy.parks(),
	}, nil
}

// defaultTimeout is asynq's of a task with neither a timeout nor a deadline.
const defaultTimeout = 30 * time.Minute

// unique returns for how long there may be no equal task, unless the uniqueness ends with the task before; 0 if it is not unique.
func (o Options) unique() time.Duration {
	const longest = 365 * 24 * time.Hour // so that a key whose task somebody has deleted goes away
	if o.Unique {
		return longest
	}
	return o.UniqueFor
}

// message returns the task as asynq's client would encode it. The options are checked.
func (o Options) message(kind string, payload []byte, headers map[string]string) *taskredis.Message {
	const defaultRetries = 25 // asynq's
	m := &taskredis.Message{
		Type: kind, Payload: payload, Headers: headers, ID: o.TaskID, Queue: o.Queue, Retry: max(cmp.Or(o.Retries, defaultRetries), 0),
		Timeout: int64(o.Timeout / time.Second), Retention: int64(o.Retention / time.Second),
	}
	if !o.Deadline.IsZero() {
		m.Deadline = wholeSecond(o.Deadline).Unix()
	} else if o.Timeout == 0 {
		m.Timeout = int64(defaultTimeout / time.Second)
	}
	return m
}

// at returns when the task is to run, the zero time for now, and for a debounced task, whose time Redis says.
func (o Options) at(now time.Time) time.Time {
	switch {
	case o.Debounce != "":
	case o.Delay > 0:
		return wholeSecond(now.Add(o.Delay))
	case o.At.After(now):
		return wholeSecond(o.At)
	}
	return time.Time{}
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

// check checks the options that concern asynq, too.
func (o Options) check(kind string, now time.Time) error {
	fail := func(field, want string, have any) error {
		return &TaskError{Kind: kind, Field: field, Want: want, Value: clip(fmt.Sprint(have))}
	}
	for _, name := range []struct{ field, value string }{{"queue", o.Queue}, {"task id", o.TaskID}} {
		if want := wantName(name.value, maxName); want != "" && name.value != "" {
			return fail(name.field, "want "+want, name.value)
		}
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{{"unique for", o.UniqueFor}, {"timeout", o.Timeout}, {"retention", o.Retention}} {
		if d.value < 0 || d.value%time.Second != 0 {
			return fail(d.field, "want whole seconds, 1 or more", d.value)
		}
	}
	switch {
	case o.Unique && o.UniqueFor != 0:
		return fail("unique for", "want none of a task that is unique while it is unfinished", o.UniqueFor)
	case o.Retries < NoRetries || o.Retries > math.MaxInt32: // asynq keeps 32 bits
		return fail("retries", fmt.Sprintf("want 0 to %d, or -1 for none", math.MaxInt32), o.Retries)
	case !o.Deadline.IsZero() && !o.Deadline.After(now):
		return fail("deadline", "want a time to come", o.Deadline.Format(time.RFC3339))
	case o.Delay < 0:
		return fail("delay", "want 0 or more", o.Delay)
	case o.Delay > 0 && !o.At.IsZero():
		return fail("delay", "want either a delay or a time, not both", o.Delay)
	}
	return nil
}

// wholeSecond rounds up. asynq cuts off fractions, and so would run the task, or end it, too early.
func wholeSecond(t time.Time) time.Time {
	return t.Add(time.Second - 1).Truncate(time.Second)
}
