package hook

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/store"
)

//go:embed dequeue.lua
var dequeueSource string

// A Locking has a dequeue take the lock of its task in the same step, or park the task if the
// lock is busy.
type Locking struct {
	// Source and Release come from package fastpath, and Args from package redisstore.
	Source  string
	Args    []any
	Release string
	// Host is the host of the holders of locks.
	Host string
	// Unused is called with a lock if the attempt was acknowledged before [Attempt.Grant] returned
	// the lock.
	Unused func(store.Grant)
	// Fallback and Spread are the fallback time of a parked task: Fallback at least, and Spread more
	// at most.
	Fallback, Spread time.Duration
	// Parked is called with a task that has been parked.
	Parked func(Parked)
}

// A Parked task has been parked instead of being dequeued.
type Parked struct {
	Queue    string
	ID       string
	Kind     string
	Resource string
	Parked   int   // how often by now
	Busy     []any // what redisstore.BusyResult reads
}

// TakeLocks makes the dequeues of the hook's servers take locks, too. Call it before the servers start.
func (h *Hook) TakeLocks(a Locking) {
	h.locking = &a
	h.dequeue = asynqredis.NewScript(asynqredis.AttemptLua + a.Source + dequeueSource)
	h.finish = finishScript(a.Release, h.dequeue.Source)
}

// A taken task is what a dequeue has answered.
type taken struct {
	msg   string
	none  bool         // if no task was taken
	left  int64        // how many tasks are left in its queue, at least, also if none was taken
	grant *store.Grant // the lock that came with it, if any
	came  int64        // its ticket in a wait queue, us by Redis' clock, or 0
}

// inRow is how many dequeues follow each other that only park tasks, ten at a time. After that many
// the call returns to asynq, which may be about to stop.
const inRow = 50

// take dequeues from a queue, under a lease that ends at the given time. The task is for the server of
// f; f is nil if the server is not known. The error is redis.Nil if no task was taken. Tasks may be
// left all the same, see taken.left.
func (h *Hook) take(ctx context.Context, next redis.ProcessHook, queue string, leaseEnds any, f fetcher) (t taken, err error) {
	if err := h.askFirst(ctx, next); err != nil {
		return taken{}, err
	}
	h.started()
	ctx = hooked(ctx)
	name := h.attemptName()
	argv := h.dequeueArgs(queue, leaseEnds, name)
	for range inRow {
		start := time.Now()
		var got any
		got, err = h.dequeue.Run(ctx, next, h.dequeueKeys(queue), argv...)
		h.backoff.After(ctx, err)
		if err != nil {
			return taken{}, err
		}
		var parked []any
		if t, parked, err = takenOf(got, start); err != nil {
			return taken{}, err
		}
		h.parked(queue, parked)
		if !t.none || t.left == 0 {
			break
		}
	}
	if t.none {
		return t, redis.Nil
	}
	t.msg, _ = h.begin(t, queue, name, leaseEnds, f)
	return t, nil
}

// dequeueArgs returns the ARGV of dequeue.lua.
func (h *Hook) dequeueArgs(queue string, leaseEnds any, name string) []any {
	argv := append(make([]any, 0, 12), leaseEnds, asynqredis.TaskKeyPrefix(queue), name)
	if h.locking != nil {
		argv = append(append(argv, asynqredis.WaiterNames(queue)), h.lockingArgs()...)
	}
	return argv
}

// lockingArgs returns the ARGV of dequeue.lua from the fifth on.
func (h *Hook) lockingArgs() []any {
	a := h.locking
	if a == nil {
		return nil
	}
	return append([]any{a.Host, a.Fallback.Milliseconds(), a.Spread.Milliseconds(), asynqredis.UniqueMargin.Milliseconds()}, a.Args...)
}

// begin remembers the attempt of a task that was taken for the server of f. It returns the task as
// asynq reads it, and no attempt if the task cannot be read.
func (h *Hook) begin(t taken, queue, name string, leaseEnds any, f fetcher) (read string, a *Attempt) {
	m, err := asynqredis.ParseMessage(t.msg)
	if err != nil || m.ID == "" {
		return t.msg, nil // asynq says what is wrong with the task
	}
	lease, _ := leaseEnds.(int64)
	a = &Attempt{
		Attempt: asynqredis.Attempt{Queue: queue, ID: m.ID, Came: t.came, Name: name}, hook: h, fetcher: f,
		message: m, lease: lease, grant: t.grant,
	}
	if m.Retention > 0 || !h.first.guarded.Load() {
		a.encoded = t.msg
	}
	read = t.msg
	if now := time.Now(); m.Waited && m.Overdue(now) {
		a.overdue, read = asynqredis.EndOverdue(t.msg, m, now)
	}
	h.running.add(a)
	return read, a
}

// attemptName returns a new name for an attempt.
func (h *Hook) attemptName() string { return h.name + "-" + strconv.FormatUint(h.count.Add(1), 36) }

// parked reports the tasks that a dequeue has parked.
func (h *Hook) parked(queue string, tasks []any) {
	for _, task := range tasks {
		fields, _ := task.([]any)
		if len(fields) < 4 {
			continue
		}
		r := Parked{Queue: queue, Busy: fields[4:]}
		r.ID, _ = fields[0].(string)
		r.Kind, _ = fields[1].(string)
		r.Resource, _ = fields[2].(string)
		parked, _ := fields[3].(int64)
		r.Parked = int(parked)
		h.locking.Parked(r)
	}
}

// dequeueKeys returns the keys of a dequeue, which are made once for each queue.
func (h *Hook) dequeueKeys(queue string) []any {
	if keys, ok := h.keys.Load(queue); ok {
		return keys.([]any) //nolint:errcheck,forcetypeassert // nothing else is stored
	}
	keys := []any{asynqredis.PendingKey(queue), asynqredis.PausedKey(queue), asynqredis.ActiveKey(queue), asynqredis.LeaseKey(queue), asynqredis.NotifyKey(queue), asynqredis.RetryKey(queue), asynqredis.ContendedKey(queue)}
	h.keys.Store(queue, keys)
	return keys
}

// takenOf reads the answer to a dequeue that was sent at start.
func takenOf(got any, start time.Time) (t taken, parked []any, err error) {
	parts, _ := got.([]any)
	if len(parts) < 3 {
		return t, nil, fmt.Errorf("%w: %T", asynqredis.ErrEncoding, got)
	}
	text := func(i int) string { s, _ := parts[i].(string); return s }
	number := func(i int) int64 {
		n, nerr := strconv.ParseInt(text(i), 10, 64)
		err = errors.Join(err, nerr)
		return n
	}
	t.msg, t.none = text(0), parts[0] == nil
	t.left, _ = parts[1].(int64)
	parked, _ = parts[2].([]any)
	if len(parts) > 3 {
		t.came = number(3)
	}
	if len(parts) == 8 {
		t.grant = &store.Grant{
			Resource: text(4), Token: text(5), Fence: number(6), HandOff: time.Duration(number(7)) * time.Microsecond, Start: start,
		}
	}
	if err != nil {
		t.grant, t.came = nil, 0 // the lock expires after its TTL
	}
	return t, parked, nil
}
