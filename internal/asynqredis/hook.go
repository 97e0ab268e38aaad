package asynqredis

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/lock"
)

var (
	//go:embed dequeue.lua
	dequeueSource string
	//go:embed attempt.lua
	attemptSource string
	//go:embed encoded.lua
	encodedSource string
	//go:embed refuse.lua
	refuseSource string
	//go:embed named.lua
	namedSource string
	//go:embed ahead.lua
	aheadSource string
)

// A Hook watches the Redis connection of asynq's servers; see the package
// comment. One hook may serve several clients.
type Hook struct {
	logger     *slog.Logger
	begun      func()
	name       string        // the first part of the names of this process's attempts
	count      atomic.Uint64 // the second part
	mismatched atomic.Bool   // asynq is not the known one
	dequeue    script
	ahead      *Ahead
	keys       sync.Map // of dequeues, by queue
	running    attempts
	acks       learned
	rings      rings
	outage     outage
	finish     *redis.Script
	apart      *redis.Script // the dequeue without a lock, as a call of its own in a Cluster
	prefetch   prefetcher
	gate       gate
	first      firstCheck
	spared     func(SilentTask) bool // see Spare
	// noRepeatBefore, in Unix nanoseconds: Redis has just not answered.
	noRepeatBefore atomic.Int64
}

var _ redis.Hook = (*Hook)(nil)

// NewHook returns a hook; add it to a client with AddHook. begun is called once, when
// the first dequeue is seen.
func NewHook(logger *slog.Logger, begun func()) *Hook {
	build, _ := debug.ReadBuildInfo()
	return newHook(logger, begun, build)
}

func newHook(logger *slog.Logger, begun func(), build *debug.BuildInfo) *Hook {
	h := &Hook{logger: logger, begun: sync.OnceFunc(begun), name: uuid.NewString(), dequeue: newScript("local ahead\n" + attemptSource + dequeueSource)}
	h.finish, h.apart = finishScript("", h.dequeue.source), ownScript(h.dequeue.source)
	if other := otherAsynq(build); other != "" {
		h.mismatch(other)
	}
	return h
}

// An Ahead has the lock of a task taken in the same step as the task, or the task put aside
// where somebody holds it.
type Ahead struct {
	// Source and Args come from package redisstore.
	Source  string
	Args    []any
	Release string
	// Host is where the holders of locks are.
	Host string
	// Unused is told of a lock for which nobody has asked the attempt before it was
	// acknowledged.
	Unused func(lock.Grant)
	// A waiter comes by itself after Fallback at the earliest, and after Spread more at the latest.
	Fallback, Spread time.Duration
	// Refused is told of a task that has been put aside.
	Refused func(Refused)
}

// A Refused task has been put aside instead of being dequeued.
type Refused struct {
	Queue    string
	ID       string
	Kind     string
	Resource string
	Parked   int   // how often by now
	Refusal  []any // what lock.Locker.Refusal reads
}

// TakeAhead makes the dequeues of the hook's servers take locks, too. Call it before
// they begin.
func (h *Hook) TakeAhead(a Ahead) {
	h.ahead = &a
	h.dequeue = newScript(a.Source + attemptSource + namedSource + encodedSource + asideSource + refuseSource + aheadSource + dequeueSource)
	h.finish = finishScript(a.Release, h.dequeue.source)
}

// Together reports whether the hook's scripts take a lock in the step in which they take its task,
// and release the lock in the step that ends the attempt.
func (h *Hook) Together() bool { return h.ahead != nil }

// Attempt returns the attempt of a task whose handler is about to begin in this process; nil where
// its connection has no hook.
func (h *Hook) Attempt(queue, id string) *Attempt {
	a := h.running.get(queue, id)
	if h.Mismatched() && (a == nil || a.wasPinned()) {
		a = &Attempt{Queue: queue, ID: id}
		h.running.add(a)
	}
	return a
}

// Overlaps reports whether an earlier attempt of a's task is still at work in this
// process. Of two at once asynq keeps one lease, and it may be the wrong one.
func (h *Hook) Overlaps(a *Attempt) bool { return h.running.overlaps(a) }

// Beside reports whether a [Finish] had ended an earlier task of a's id when a began, and asynq had not
// yet made its own call for that one. By that call asynq forgets the lease of a, as the ids are one.
func (h *Hook) Beside(a *Attempt) bool { return h.running.beside(a) }

// DialHook passes through.
func (h *Hook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook passes through: asynq sends its scripts one by one.
func (h *Hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook sends asynq's calls on, changed where the package comment says so.
func (h *Hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h.process(ctx, next, cmd, parse(cmd))
	}
}

func (h *Hook) process(ctx context.Context, next redis.ProcessHook, cmd redis.Cmder, c call) error {
	c.markGuarded()
	if c.unknown() {
		h.mismatch("a script of SHA1 " + c.sha)
	}
	if h.Mismatched() {
		return h.passOn(ctx, next, cmd, c)
	}
	switch c.op {
	case opDequeue:
		if h.gate.held(ctx) {
			return answer(cmd, "", redis.Nil)
		}
		t, err := h.take(ctx, next, c.queue, c.argv[0], nil)
		return answer(cmd, t.msg, err)
	case opDone, opComplete, opRequeue, opRetry, opArchive:
		return h.acknowledge(ctx, next, cmd, c)
	case opListExpired:
		return h.listExpired(ctx, next, cmd, c)
	case opNone:
		// A new connection's own commands come through the hook in the context of the call that it is for.
		if c.sha != "" && isHooked(ctx) {
			h.first.twice.Do(func() { h.logger.ErrorContext(ctx, "no tasks are taken", "error", errHookedTwice) })
			return answer(cmd, nil, errHookedTwice)
		}
		if a, result := h.resultOf(cmd); a != nil {
			return h.writeResult(ctx, next, cmd, a, result)
		}
		if _, ok := c.pendingOf(); ok {
			return h.rings.send(ctx, next, cmd, c)
		}
	}
	return next(ctx, cmd)
}

// A taken task is what a dequeue has answered.
type taken struct {
	msg   string
	none  bool        // where no task was taken
	left  int64       // how many tasks are left in its queue, at least, also where none was taken
	grant *lock.Grant // the lock that came with it, if any
	came  int64       // its ticket in a line, us by Redis' clock, or 0
}

// inRow is how many dequeues follow each other that do no more than to put tasks aside, ten
// at a time. Then asynq has its turn: it may be about to end.
const inRow = 50

// take dequeues from a queue, under a lease that ends at the given time. The task is for the server of
// f; f is nil if the server is not known. The error is redis.Nil when there is no task; or none so
// far, with how many are left.
func (h *Hook) take(ctx context.Context, next redis.ProcessHook, queue string, leaseEnds any, f *Fetcher) (t taken, err error) {
	if err := h.askFirst(ctx, next); err != nil {
		return taken{}, err
	}
	h.begun()
	ctx = hooked(ctx)
	name := h.attemptName()
	argv := h.dequeueArgs(queue, leaseEnds, name)
	for range inRow {
		start := time.Now()
		var got any
		got, err = run(ctx, next, h.dequeue, h.dequeueKeys(queue), argv...)
		h.outage.rest(ctx, err)
		if err != nil {
			return taken{}, err
		}
		var refused []any
		if t, refused, err = takenOf(got, start); err != nil {
			return taken{}, err
		}
		h.refused(queue, refused)
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
	argv := append(make([]any, 0, 12), leaseEnds, taskKeyPrefix(queue), name)
	if h.ahead != nil {
		argv = append(append(argv, waiterNames(queue)), h.aheadArgs()...)
	}
	return argv
}

// aheadArgs returns the ARGV of dequeue.lua from the fifth on.
func (h *Hook) aheadArgs() []any {
	a := h.ahead
	if a == nil {
		return nil
	}
	return append([]any{a.Host, a.Fallback.Milliseconds(), a.Spread.Milliseconds(), uniqueMargin.Milliseconds()}, a.Args...)
}

// begin remembers the attempt of a task that was taken for the server of f. It returns the task as
// asynq is to read it, and no attempt if the task cannot be read.
func (h *Hook) begin(t taken, queue, name string, leaseEnds any, f *Fetcher) (read string, a *Attempt) {
	m, err := messageOf(t.msg)
	if err != nil || m.id == "" {
		return t.msg, nil // asynq will say what is wrong with it
	}
	lease, _ := leaseEnds.(int64)
	a = &Attempt{
		Queue: queue, ID: m.id, Came: t.came, name: name, hook: h, fetcher: f,
		failure: m.failure, waited: m.waited, unique: m.unique, retention: m.retention, lease: lease, grant: t.grant,
	}
	if m.retention > 0 || !h.first.guarded.Load() {
		a.encoded = t.msg
	}
	read = t.msg
	if now := time.Now(); m.waited && m.overdue(now) {
		a.overdue, read = overdue(t.msg, m, now)
	}
	h.running.add(a)
	return read, a
}

// overdue returns what becomes of a task that has waited until its deadline had passed: how it is
// archived, and how asynq is to read it for that. asynq never calls the handler of such a task;
// it takes it for failed, and archives it where there are no retries.
func overdue(encoded string, m message, now time.Time) (archived, read string) {
	at := time.Unix(int64(m.deadline), 0).UTC().Format(time.DateTime) //nolint:gosec // it has passed
	archived, err := withFailure(encoded, "its deadline, "+at+" UTC, passed while it waited: "+m.lastError)
	if err != nil {
		return "", encoded
	}
	archived = withNumber(archived, fieldLastFailedAt, uint64(now.Unix())) //nolint:gosec // after 1970
	return archived, withNumber(encoded, fieldRetry, 0)
}

// attemptName returns the name of another attempt.
func (h *Hook) attemptName() string { return h.name + "-" + strconv.FormatUint(h.count.Add(1), 36) }

// refused tells of the tasks that a dequeue has put aside.
func (h *Hook) refused(queue string, tasks []any) {
	for _, task := range tasks {
		fields, _ := task.([]any)
		if len(fields) < 4 {
			continue
		}
		r := Refused{Queue: queue, Refusal: fields[4:]}
		r.ID, _ = fields[0].(string)
		r.Kind, _ = fields[1].(string)
		r.Resource, _ = fields[2].(string)
		parked, _ := fields[3].(int64)
		r.Parked = int(parked)
		h.ahead.Refused(r)
	}
}

// dequeueKeys returns the keys of a dequeue, which are made once for each queue.
func (h *Hook) dequeueKeys(queue string) []any {
	if keys, ok := h.keys.Load(queue); ok {
		return keys.([]any) //nolint:errcheck,forcetypeassert // nothing else is stored
	}
	keys := []any{pendingKey(queue), pausedKey(queue), activeKey(queue), leaseKey(queue), bellKey(queue), retryKey(queue), contendedKey(queue)}
	h.keys.Store(queue, keys)
	return keys
}

// takenOf reads the answer to a dequeue that was sent at start.
func takenOf(got any, start time.Time) (t taken, refused []any, err error) {
	parts, _ := got.([]any)
	if len(parts) < 3 {
		return t, nil, fmt.Errorf("%w: %T", errMessage, got)
	}
	text := func(i int) string { s, _ := parts[i].(string); return s }
	number := func(i int) int64 {
		n, nerr := strconv.ParseInt(text(i), 10, 64)
		err = errors.Join(err, nerr)
		return n
	}
	t.msg, t.none = text(0), parts[0] == nil
	t.left, _ = parts[1].(int64)
	refused, _ = parts[2].([]any)
	if len(parts) > 3 {
		t.came = number(3)
	}
	if len(parts) == 8 {
		t.grant = &lock.Grant{
			Resource: text(4), Token: text(5), Fence: number(6), HandOff: time.Duration(number(7)) * time.Microsecond, Start: start,
		}
	}
	if err != nil {
		t.grant, t.came = nil, 0 // its ttl frees the lock
	}
	return t, refused, nil
}
