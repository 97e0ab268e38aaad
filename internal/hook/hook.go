package hook

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/fetch"
)

// A Hook watches the Redis connection of asynq's servers; see the package
// comment. One hook may serve several clients.
type Hook struct {
	logger     *slog.Logger
	started    func()
	name       string        // the first part of the names of this process's attempts
	count      atomic.Uint64 // the second part
	mismatched atomic.Bool   // asynq is not the known one
	dequeue    asynqredis.Script
	several    asynqredis.Script // a dequeue from several queues
	locking    *Locking
	keys       sync.Map // of dequeues, by queue
	running    attempts
	scripts    scriptCache
	versions   string // that this process runs
	backoff    fetch.Backoff
	finish     *redis.Script
	apart      *redis.Script  // the dequeue without a lock, as a call of its own in a Cluster
	rdb        redis.Scripter // see Prefetch
	gate       gate
	first      firstCheck
	tolerated  func(asynqredis.Orphan) bool // see Tolerate
	// noRepeatBefore is the time, in Unix nanoseconds, before which no acknowledgement is sent again, as
	// Redis has just not answered.
	noRepeatBefore atomic.Int64
}

// NewHook returns a hook; add its [Hook.Server] to a client with AddHook. started is called once, when
// the first dequeue is seen.
func NewHook(logger *slog.Logger, started func()) *Hook {
	build, _ := debug.ReadBuildInfo()
	return newHook(logger, started, build)
}

func newHook(logger *slog.Logger, started func(), build *debug.BuildInfo) *Hook {
	h := &Hook{versions: versionsOf(build), logger: logger, started: sync.OnceFunc(started), name: uuid.NewString(), dequeue: asynqredis.NewScript(asynqredis.AttemptLua + "local lock_or_park\n" + dequeueSource)}
	h.finish, h.apart = finishScript("", h.dequeue.Source), asynqredis.OwnScript(h.dequeue.Source)
	if other := otherAsynq(build); other != "" {
		h.mismatch(other)
	}
	return h
}

// Attempt returns the attempt of a task whose handler is about to start in this process; nil if the
// connection of its server has no hook.
func (h *Hook) Attempt(queue, id string) *Attempt {
	a, started := h.running.latest(asynqredis.TaskKey(queue, id))
	if h.Mismatched() && (a == nil || started) {
		a = &Attempt{Attempt: asynqredis.Attempt{Queue: queue, ID: id}, server: server{Hook: h}}
		h.running.add(a)
	}
	return a
}

// Overdue reports whether the deadline of a task passed while it waited. asynq does not call its handler
// then.
func (h *Hook) Overdue(queue, id string) bool {
	a, _ := h.running.latest(asynqredis.TaskKey(queue, id))
	return a != nil && a.overdue != ""
}

// A fetcher answers the dequeues of one server; see [fetch.Fetcher].
type fetcher interface {
	Dequeue(ctx context.Context, queue string, scan fetch.Scan) (fetch.Task, error)
	Wants(queue string, together bool) fetch.Wanted
	Deliver(t fetch.Task)
}

// A server is a [Hook] on the connection of one server.
type server struct {
	*Hook

	fetcher fetcher
}

// Server returns the hook for the connection of one server, whose dequeues f answers while asynq is the
// known one.
func (h *Hook) Server(f fetcher) redis.Hook { return server{h, f} }

// DialHook passes through.
func (s server) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook passes through: asynq sends its scripts one by one.
func (s server) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook sends asynq's calls on, changed as the package comment says.
func (s server) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return s.process(ctx, next, cmd) }
}

func (s server) process(ctx context.Context, next redis.ProcessHook, cmd redis.Cmder) error {
	h, c := s.Hook, parse(cmd)
	asynqredis.MarkGuarded(c.keys, c.argv, h.versions)
	if c.unknown() {
		h.mismatch("a script of SHA1 " + c.sha)
	}
	if h.Mismatched() {
		return h.sendUnknown(ctx, next, cmd, c)
	}
	switch {
	case c.op == opDequeue:
		t, err := s.dequeue(ctx, next, c)
		return answer(cmd, t.Message, err)
	case c.op.ends():
		return h.acknowledge(ctx, next, cmd, c)
	case c.op == opListExpired:
		return h.listExpired(ctx, next, cmd, c)
	// A new connection's own commands come through the hook in the context of the call that it is for.
	case c.sha != "" && ctx.Value(hookedKey{}) != nil:
		h.first.twice.Do(func() { h.logger.ErrorContext(ctx, "no tasks are taken", "error", errHookedTwice) })
		return answer(cmd, nil, errHookedTwice)
	}
	if a, result := h.resultOf(cmd); a != nil {
		return h.writeResult(ctx, next, cmd, a, result)
	}
	if _, ok := c.pendingOf(); ok {
		return h.scripts.notify(ctx, next, cmd, c)
	}
	return next(ctx, cmd)
}

func (s server) dequeue(ctx context.Context, next redis.ProcessHook, c call) (fetch.Task, error) {
	if s.gate.held(ctx) {
		return fetch.Task{}, redis.Nil
	}
	t, err := s.fetcher.Dequeue(ctx, c.queue, func(queues ...string) (fetch.Task, error) {
		return s.take(ctx, next, c.argv[0], queues)
	})
	if a, ok := t.Attempt.(*Attempt); ok {
		s.running.claimed(a, c.argv[0])
	}
	return t, err
}
