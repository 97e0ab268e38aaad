package hook

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// A firstCheck is made before a hook's first dequeue, and again until it succeeds. Until then no task
// is taken.
type firstCheck struct {
	check     func(context.Context, redis.ProcessHook) error
	guards    func(kind string, headers map[string]string) bool
	done      atomic.Bool
	guarded   atomic.Bool // there is a handler that runs attempts
	unguarded atomic.Bool // a guarded task is done, and there was none
	twice     sync.Once   // logged
}

// CheckFirst has check called before the first task is taken, and again once the hook is
// [Hook.Unguarded]. tasks is the connection of the server. An error of check becomes the error of
// the dequeue, and asynq dequeues again. guards reports whether the guard runs a task. Call
// CheckFirst before the servers start.
func (h *Hook) CheckFirst(check func(ctx context.Context, tasks redis.ProcessHook) error, guards func(kind string, headers map[string]string) bool) {
	h.first.check, h.first.guards = check, guards
}

// Guarded says that there is a handler that runs attempts.
func (h *Hook) Guarded() { h.first.guarded.Store(true) }

// Unguarded reports whether a task that the guard runs was done before [Hook.Guarded] was called.
func (h *Hook) Unguarded() bool { return h.first.unguarded.Load() }

func (h *Hook) askFirst(ctx context.Context, tasks redis.ProcessHook) error {
	f := &h.first
	if f.check == nil || f.done.Load() {
		return nil
	}
	err := f.check(ctx, tasks)
	f.done.Store(err == nil)
	h.backoff.After(ctx, err) // asynq asks again at once
	return err
}

// ended has the check made again if a's task is done without the guard that runs such tasks. The first
// such task is logged at once, as the next dequeue may be long in coming.
func (h *Hook) ended(ctx context.Context, a *Attempt) {
	f := &h.first
	if f.guards == nil || f.guarded.Load() || !f.guards(a.message.Kind, a.message.Headers) {
		return
	}
	if !f.unguarded.Swap(true) {
		h.logger.ErrorContext(ctx, "a guarded task has run without its lock, as the server's handler did not pass through Guard.Middleware", "task_id", a.ID, "task_kind", a.message.Kind, "queue", a.Queue)
	}
	f.done.Store(false)
}

// hookedKey marks the contexts of dequeues that have passed through a hook.
type hookedKey struct{}

// errHookedTwice is the answer to the dequeues of a server whose connection has two hooks. Each hook
// would change the dequeues, and take the tasks of the other for its own.
var errHookedTwice = errors.New("queue: the server's connection passed through Guard.Conn twice: it has to be that of one guard, once")
