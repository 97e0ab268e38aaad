package asynqredis

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// A first check is made before a hook's first dequeue, and again until it succeeds: without
// it no task is taken.
type firstCheck struct {
	check     func(context.Context, redis.ProcessHook) error
	guards    func(kind string, headers map[string]string) bool
	done      atomic.Bool
	guarded   atomic.Bool // there is a handler that pins attempts
	unguarded atomic.Bool // a guarded task is done, and there was none
	twice     sync.Once   // logged
}

// CheckFirst has check asked before the first task is taken, and again once the hook is
// [Hook.Unguarded]. It is given the connection of the server. Its error is that of the dequeue,
// which asynq makes again. guards reports whether a task is to be guarded. Call it before the servers
// begin.
func (h *Hook) CheckFirst(check func(ctx context.Context, tasks redis.ProcessHook) error, guards func(kind string, headers map[string]string) bool) {
	h.first.check, h.first.guards = check, guards
}

// Guarded says that there is a handler that asks for attempts and pins them.
func (h *Hook) Guarded() { h.first.guarded.Store(true) }

// Unguarded reports whether a task that is to be guarded is done before [Hook.Guarded] was called.
func (h *Hook) Unguarded() bool { return h.first.unguarded.Load() }

func (h *Hook) askFirst(ctx context.Context, tasks redis.ProcessHook) error {
	f := &h.first
	if f.check == nil || f.done.Load() {
		return nil
	}
	err := f.check(ctx, tasks)
	f.done.Store(err == nil)
	h.outage.rest(ctx, err) // asynq asks again at once
	return err
}

// ended has the check made again where a's task is done, and was to be guarded.
func (f *firstCheck) ended(a *Attempt) {
	if f.guards == nil || f.guarded.Load() {
		return
	}
	msg := []byte(a.encoded)
	kind, err1 := field(msg, fieldType)
	with, err2 := headers(msg)
	if err1 == nil && err2 == nil && f.guards(kind, with) {
		f.unguarded.Store(true)
		f.done.Store(false)
	}
}

type hookedKey struct{}

// errHookedTwice is the answer to the dequeues of a server whose connection has two hooks. Each
// would change the dequeues, and take the tasks of the other for its own.
var errHookedTwice = errors.New("queue: the server's connection passed through Guard.Conn twice: it has to be that of one guard, once")

// hooked returns the context of a call that has passed through a hook.
func hooked(ctx context.Context) context.Context { return context.WithValue(ctx, hookedKey{}, true) }

func isHooked(ctx context.Context) bool { return ctx.Value(hookedKey{}) != nil }
