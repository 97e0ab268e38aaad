package hook

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/fetch"
	"github.com/sidingq/siding/internal/redisreply"
	"github.com/sidingq/siding/internal/store"
)

var (
	//go:embed dequeue.lua
	dequeueSource string
	//go:embed several.lua
	severalSource string
)

// A Locking has each dequeue take the lock of its task in the same step. If the lock is busy, the
// dequeue parks the task.
type Locking struct {
	// Source and Release come from package fastpath, and Args from package redisstore.
	Source  string
	Args    []any
	Release string
	// Host is the host of the holders of locks.
	Host string
	// Limited returns the patterns of the resources whose locks the dequeue leaves to the guard, as
	// locking.lua reads them.
	Limited func() string
	// Kinds are the kinds of tasks that the dequeue leaves to the guard if their locks are busy, each
	// between line breaks.
	Kinds string
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
	h.several = asynqredis.NewScript("local function dequeue(KEYS, ARGV)\n" + h.dequeue.Source + "\nend\n" + severalSource)
	h.finish = finishScript(a.Release, h.dequeue.Source)
}

// A taken task is what a dequeue has answered.
type taken struct {
	fetch.Task

	none  bool         // if no task was taken
	grant *store.Grant // the lock that came with it, if any
	came  int64        // its ticket in a wait queue, µs by Redis' clock, or 0
}

// take dequeues from the first of the queues that has a task, under a lease that ends at the given time.
// The error is redis.Nil if no task was taken.
func (s server) take(ctx context.Context, next redis.ProcessHook, leaseEnds any, queues []string) (fetch.Task, error) {
	if err := s.askFirst(ctx, next); err != nil {
		return fetch.Task{}, err
	}
	s.started()
	ctx = context.WithValue(ctx, hookedKey{}, true)
	name := s.attemptName()
	script, keys, argv := s.dequeueOf(queues, leaseEnds, name)
	start := time.Now()
	got, err := script.Run(ctx, next, keys, argv...)
	s.backoff.After(ctx, err)
	if err != nil {
		return fetch.Task{}, err
	}
	queue := queues[0]
	if len(queues) > 1 {
		if queue, got, err = ofSeveral(got, queues); err != nil {
			return fetch.Task{}, err
		}
	}
	t, err := s.takenOf(got, queue, start)
	switch {
	case err != nil:
		return fetch.Task{}, err
	case !t.none:
		return s.begin(t, queue, name, leaseEnds), nil
	case len(queues) > 1:
		t.Left = max(t.Left, 1) // the queues behind this one were not asked
	}
	return t.Task, redis.Nil
}

// dequeueOf returns the script of a dequeue, its KEYS and its ARGV.
func (h *Hook) dequeueOf(queues []string, leaseEnds any, name string) (script asynqredis.Script, keys, argv []any) {
	if len(queues) == 1 {
		return h.dequeue, h.dequeueKeys(queues[0]), h.dequeueArgs(queues[0], leaseEnds, name)
	}
	argv = append(make([]any, 0, 13+2*len(queues)), len(queues))
	for _, queue := range queues {
		argv = append(argv, queue, asynqredis.WaiterNames(queue))
	}
	return h.several, nil, append(append(argv, leaseEnds, name), h.lockingArgs()...)
}

// ofSeveral returns the queue that several.lua has taken a task from, and what dequeue.lua has returned
// of it.
func ofSeveral(got any, queues []string) (queue string, answer any, err error) {
	list, _ := got.([]any)
	if at := redisreply.Int(list, 0); len(list) == 2 && at >= 1 && at <= int64(len(queues)) {
		return queues[at-1], list[1], nil
	}
	return "", nil, fmt.Errorf("%w: %T", asynqredis.ErrEncoding, got)
}

// dequeueArgs returns the ARGV of dequeue.lua.
func (h *Hook) dequeueArgs(queue string, leaseEnds any, name string) []any {
	argv := append(make([]any, 0, 14), leaseEnds, asynqredis.TaskKeyPrefix(queue), name)
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
	argv := append(make([]any, 0, 10), a.Host, a.Fallback.Milliseconds(), a.Spread.Milliseconds(), asynqredis.UniqueMargin.Milliseconds())
	return append(append(argv, a.Args...), a.Limited(), a.Kinds)
}

// begin remembers the attempt of a task that was taken for the server. begin returns the task as
// asynq reads it. If the task cannot be read, the result has no attempt.
func (s server) begin(t taken, queue, name string, leaseEnds any) fetch.Task {
	m, err := asynqredis.ParseMessage(t.Message)
	if err != nil || m.ID == "" {
		if t.grant != nil {
			s.locking.Unused(*t.grant)
		}
		return t.Task // asynq says what is wrong with the task
	}
	lease, _ := leaseEnds.(int64)
	a := &Attempt{
		Attempt: asynqredis.Attempt{Queue: queue, ID: m.ID, Came: t.came, Name: name}, server: s,
		message: m, lease: lease, grant: t.grant,
	}
	if m.Retention > 0 {
		a.encoded = t.Message
	}
	if now := time.Now(); m.Waited && m.Overdue(now) {
		a.overdue, t.Message = asynqredis.EndOverdue(t.Message, m, now)
	}
	s.running.add(a)
	t.Attempt = a
	return t.Task
}

// attemptName returns a new name for an attempt.
func (h *Hook) attemptName() string { return h.name + "-" + strconv.FormatUint(h.count.Add(1), 36) }

// dequeueKeys returns the keys of a dequeue, which are made once for each queue.
func (h *Hook) dequeueKeys(queue string) []any {
	if keys, ok := h.keys.Load(queue); ok {
		return keys.([]any) //nolint:errcheck,forcetypeassert // nothing else is stored
	}
	keys := []any{asynqredis.PendingKey(queue), asynqredis.PausedKey(queue), asynqredis.ActiveKey(queue), asynqredis.LeaseKey(queue), asynqredis.NotifyKey(queue), asynqredis.RetryKey(queue), asynqredis.ContendedKey(queue)}
	h.keys.Store(queue, keys)
	return keys
}

// takenOf reads the answer to a dequeue that was sent at start. It also reports the tasks that the
// dequeue has parked.
func (h *Hook) takenOf(got any, queue string, start time.Time) (t taken, err error) {
	answer, _ := got.([]any)
	if len(answer) < 3 {
		return t, fmt.Errorf("%w: %T", asynqredis.ErrEncoding, got)
	}
	for _, parked := range redisreply.List(answer, 2) {
		if run, _ := parked.([]any); len(run) > sharedParts {
			h.reportParked(queue, run)
		}
	}
	t.Message, t.Left, t.none = redisreply.Text(answer, 0), redisreply.Int(answer, 1), answer[0] == nil
	t.came = redisreply.Int(answer, 3)
	if len(answer) == 9 {
		t.grant = &store.Grant{
			Resource: redisreply.Text(answer, 4), Token: redisreply.Text(answer, 5), Fence: redisreply.Int(answer, 6),
			HandOff: time.Duration(redisreply.Int(answer, 7)) * time.Microsecond, From: redisreply.Text(answer, 8), Start: start,
		}
	}
	return t, nil
}

// A run of parked tasks is what park_busy in package fastpath returns: four values that its tasks
// share, and five for each.
const sharedParts, ownParts = 4, 5

// reportParked reports the tasks of a run.
func (h *Hook) reportParked(queue string, run []any) {
	shared := run[:sharedParts]
	for own := range slices.Chunk(run[sharedParts:], ownParts) {
		if len(own) == ownParts {
			h.locking.Parked(Parked{
				Queue: queue, ID: redisreply.Text(own, 0), Kind: redisreply.Text(own, 1), Resource: redisreply.Text(shared, 0),
				Parked: int(redisreply.Int(own, 2)), Busy: slices.Concat(shared[1:], own[3:]),
			})
		}
	}
}
