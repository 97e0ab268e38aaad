package taskredis

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Errors of tasks that are not stored.
var (
	// ErrDuplicate says that another task has the task's key of uniqueness.
	ErrDuplicate = errors.New("taskredis: there is an equal task")
	// ErrIDConflict says that the queue has another task of the same id, be it one that has ended and is kept.
	ErrIDConflict = errors.New("taskredis: there is a task of the same id")
)

// IsFault reports whether err says more than that one task was refused.
func IsFault(err error) bool {
	return err != nil && !errors.Is(err, ErrDuplicate) && !errors.Is(err, ErrIDConflict)
}

// An Enqueue is a task to be stored.
//
// It becomes scheduled if At is to come, or else aggregating if its message has a group, or else pending. So asynq's
// client decides it, by the clock of the client. The times that are kept beside the task are Redis' (asynq: the client's):
// since when it is pending, in nanoseconds, and when it came to its group, in Unix seconds.
type Enqueue struct {
	Message *Message  // with an ID and a Queue; Enqueue sets its UniqueKey
	At      time.Time // when it becomes pending; asynq keeps whole seconds, and cuts off the rest

	// Unique is for how long no equal task can be stored, counted from At, unless this one ends before; with Always, also if
	// it does. Equal are tasks of the same queue, type and payload. Zero is for a task that may have equals. Redis keeps whole
	// seconds, rounded up.
	Unique time.Duration
	Always bool

	// Debounce, unless it is empty, has the task replace the last one with the same queue, type, Resource and Debounce, if that
	// still waits for its delay; Enqueue sets Replaced to the id of that one. The task is scheduled by Redis' clock, not by At:
	// Delay from now, but no later than MaxDelay after the first of those that have replaced each other. Both durations are
	// whole seconds. The task has an OwnID, no Unique and no group. Debounce holds no line feed.
	Debounce        string
	Delay, MaxDelay time.Duration
	Replaced        string

	// OwnID says that the caller has just made up the id, so nobody else can have chosen it. Then a task of that id is this
	// one, stored by an earlier send of the same call, and nothing has to be kept to know it.
	OwnID bool

	Resource  string // "" for none, or none that the client knows
	Priority  int    // 0 for none
	HasPolicy bool   // the task has a policy of its own
}

// An Enqueuer stores tasks. It is safe for use by several goroutines.
type Enqueuer struct {
	rdb redis.UniversalClient

	mu     sync.Mutex
	listed map[string]time.Time // queues, by when they were put into the set of queues last
}

// NewEnqueuer returns an Enqueuer on rdb, which the caller closes.
func NewEnqueuer(rdb redis.UniversalClient) *Enqueuer {
	return &Enqueuer{rdb: rdb, listed: make(map[string]time.Time)}
}

var enqueueScript = script("enqueue")

// Enqueue stores a task, as asynq's client would store it, with the fields that our servers look for beside it. A pending
// task wakes an idle server.
//
// After [ErrDuplicate] and [ErrIDConflict] the task is not stored. After another error it may be. A call whose answer is
// lost is sent again by go-redis, and succeeds if it finds its own task. If that has run and is gone by then, it is stored
// once more; or it is refused, if meanwhile somebody has stored an equal one. A debounced task is stored once more only if
// meanwhile another one of its debounce was.
//
// asynq leaves the key of uniqueness of a task that is refused for its id; this does not.
func (q *Enqueuer) Enqueue(ctx context.Context, e *Enqueue) error {
	if err := q.list(ctx, e.Message.Queue); err != nil {
		return err
	}
	c := e.call(time.Now())
	return c.outcome(enqueueScript.Run(ctx, q.rdb, c.keys, c.argv...).Result())
}

// Limits of one pipeline. A longer one would save little, and delay others at Redis.
const (
	pipelineCalls = 500
	pipelineBytes = 1 << 20
)

// EnqueueAll stores tasks in their order, hundreds in one round trip. The errors have the indexes of the tasks, and are
// those of [Enqueuer.Enqueue]: a task that is refused stops no other. After any other error, the tasks that would have been
// in later round trips are not sent, and have that error.
func (q *Enqueuer) EnqueueAll(ctx context.Context, tasks []*Enqueue) []error {
	errs := make([]error, 0, len(tasks))
	for len(errs) < len(tasks) {
		some, fault := q.pipeline(ctx, tasks[len(errs):])
		errs = append(errs, some...)
		for fault != nil && len(errs) < len(tasks) {
			errs = append(errs, fault)
		}
	}
	return errs
}

// pipeline stores the first of the tasks in one round trip. It returns what has become of each of those, and the first
// error that says more than that a task was refused.
func (q *Enqueuer) pipeline(ctx context.Context, tasks []*Enqueue) (errs []error, fault error) {
	var calls []enqueueCall
	var answers []*redis.Cmd
	pipe, queues, now := q.rdb.Pipeline(), make(map[string]bool), time.Now()
	size := 0
	for _, e := range tasks[:min(len(tasks), pipelineCalls)] {
		if size >= pipelineBytes {
			break
		}
		c := e.call(now)
		send := enqueueScript.EvalSha
		if !queues[e.Message.Queue] { // the first one brings the script along, which the server of its slot may not know
			queues[e.Message.Queue] = true
			send = enqueueScript.Eval
		}
		answers = append(answers, send(ctx, pipe, c.keys, c.argv...))
		calls = append(calls, c)
		size += c.bytes
	}
	if err := q.list(ctx, slices.Collect(maps.Keys(queues))...); err != nil {
		return slices.Repeat([]error{err}, len(calls)), err
	}
	_, _ = pipe.Exec(ctx) // each call has its own error
	for i, c := range calls {
		answer := answers[i]
		if redis.HasErrorPrefix(answer.Err(), "NOSCRIPT") { // the scripts were flushed in between
			answer = enqueueScript.Run(ctx, q.rdb, c.keys, c.argv...)
		}
		err := c.outcome(answer.Result())
		if fault == nil && IsFault(err) {
			fault = err
		}
		errs = append(errs, err)
	}
	return errs, fault
}

// listEvery is how often a queue is put into the set of queues. asynq's client does so once in its life; then a queue that
// an operator deletes while its clients live is never seen again by asynq's tools.
const listEvery = time.Minute

// list puts queues into the set of all queues, which asynq's tools go by. It is a call of its own, as the set is in the
// slot of another key, and comes first, so no task is in a queue that nobody sees.
func (q *Enqueuer) list(ctx context.Context, queues ...string) error {
	var due []any
	isNew := false
	now := time.Now()
	q.mu.Lock()
	for _, queue := range queues {
		if last, ok := q.listed[queue]; !ok || now.Sub(last) >= listEvery {
			due, isNew = append(due, queue), isNew || !ok
		}
	}
	q.mu.Unlock()
	if due == nil {
		return nil
	}
	if err := q.rdb.SAdd(ctx, queuesKey, due...).Err(); err != nil && isNew { // a queue that is on it already is so for another minute
		return fmt.Errorf("put the queue %v on the list of queues: %w", due[0], err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, queue := range due {
		q.listed[queue.(string)] = now //nolint:forcetypeassert,errcheck // it came from queues
	}
	return nil
}

// An enqueueCall is one of enqueue.lua.
type enqueueCall struct {
	e     *Enqueue
	keys  []string
	argv  []any
	bytes int // of the encoded task
}

func (e *Enqueue) call(now time.Time) enqueueCall {
	m := e.Message
	state, into, beside := "pending", PendingKey(m.Queue), NotifyKey(m.Queue)
	var at, seconds any = "", ""
	unique := e.Unique
	switch {
	case e.Debounce != "":
		state, into, at = "debounced", ScheduledKey(m.Queue), wholeSeconds(e.Delay)
	case e.At.After(now):
		state, into, at = "scheduled", ScheduledKey(m.Queue), e.At.Unix()
		unique = e.At.Add(unique).Sub(now)
	case m.GroupKey != "":
		state, into, beside = "aggregating", GroupKey(m.Queue, m.GroupKey), GroupsKey(m.Queue)
	}
	c := enqueueCall{e: e, keys: []string{TaskKey(m.Queue, m.ID), into, beside}}
	name, debounce := "", ""
	m.UniqueKey, e.Replaced = "", ""
	switch {
	case e.Debounce != "":
		debounce = DebounceKey(m.Queue, m.Type, e.Resource, e.Debounce)
		c.keys = append(c.keys, debounce)
		seconds = wholeSeconds(e.MaxDelay)
	case e.Unique > 0:
		m.UniqueKey = UniqueKey(m.Queue, m.Type, m.Payload)
		c.keys = append(c.keys, m.UniqueKey)
		seconds = wholeSeconds(unique)
	}
	if !e.OwnID {
		name = rand.Text()[:16]
	}
	encoded := m.Encode()
	c.bytes = len(encoded)
	c.argv = append(make([]any, 0, 21), m.ID, state, at, m.GroupKey, seconds, flag(e.Always), name, "msg", encoded)
	if m.UniqueKey != "" && state != "aggregating" { // asynq leaves it out for a group
		c.argv = append(c.argv, "unique_key", m.UniqueKey)
	}
	if e.Resource != "" {
		c.argv = append(c.argv, "siding_resource", e.Resource, "siding_kind", m.Type)
	}
	if e.Resource != "" && m.Retry == 0 {
		c.argv = append(c.argv, "siding_once", 1)
	}
	if e.HasPolicy {
		c.argv = append(c.argv, "siding_policy", 1)
	}
	if debounce != "" {
		c.argv = append(c.argv, "siding_debounce", debounce)
	}
	if e.Priority != 0 {
		c.argv = append(c.argv, "siding_priority", e.Priority)
	}
	if m.Deadline != 0 {
		c.argv = append(c.argv, "siding_deadline", m.Deadline)
	}
	if name != "" {
		c.argv = append(c.argv, "siding_call", name)
	}
	return c
}

// wholeSeconds rounds up: a wait may end later than it may, but not earlier. asynq's client rounds down, which takes up to a second from the uniqueness of a scheduled task,
// and now and then all of it: Redis refuses a key of 0 seconds.
func wholeSeconds(d time.Duration) int64 {
	seconds := int64(d / time.Second)
	if d%time.Second > 0 {
		seconds++
	}
	return seconds
}

// outcome reads the answer of enqueue.lua.
func (c enqueueCall) outcome(answer any, err error) error {
	replaced, ok := answer.(string)
	switch {
	case err != nil: // Redis has not stored it, or nobody knows
	case ok:
		c.e.Replaced = replaced
		return nil
	case answer == int64(1):
		return nil
	case answer == int64(0):
		err = ErrIDConflict
	case answer == int64(-1):
		err = ErrDuplicate
	default:
		err = fmt.Errorf("taskredis: enqueue: the script's answer is %v", answer)
	}
	m := c.e.Message
	return fmt.Errorf("%w: %s %q in the queue %q", err, m.Type, m.ID, m.Queue)
}
