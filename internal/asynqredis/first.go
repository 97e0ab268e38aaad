package asynqredis

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// A first check is made before a hook's first dequeue, and again until it succeeds: without
// it no task is taken. It is made once more when the first task is done.
type firstCheck struct {
	check func(context.Context, redis.ProcessHook) error
	done  atomic.Bool
	ended atomic.Bool // a task is done
	twice sync.Once   // logged
}

// CheckFirst has check asked before the first task is taken, and when the first one is done. It is
// given the connection of the server. Its error is that of the dequeue, which asynq makes again. Call
// it before the servers begin.
func (h *Hook) CheckFirst(check func(ctx context.Context, tasks redis.ProcessHook) error) {
	h.first.check = check
}

func (f *firstCheck) ask(ctx context.Context, tasks redis.ProcessHook) error {
	if f.check == nil || f.done.Load() {
		return nil
	}
	err := f.check(ctx, tasks)
	f.done.Store(err == nil)
	return err
}

func (f *firstCheck) askAgain() {
	if !f.ended.Swap(true) {
		f.done.Store(false)
	}
}

// Ended reports whether one of the hook's servers has done a task.
func (h *Hook) Ended() bool { return h.first.ended.Load() }

type hookedKey struct{}

// errHookedTwice is the answer to the dequeues of a server whose connection has two hooks. Each
// would change the dequeues, and take the tasks of the other for its own.
var errHookedTwice = errors.New("queue: the server's connection passed through Guard.Conn twice: it has to be that of one guard, once")

// hooked returns the context of a call that has passed through a hook.
func hooked(ctx context.Context) context.Context { return context.WithValue(ctx, hookedKey{}, true) }

func isHooked(ctx context.Context) bool { return ctx.Value(hookedKey{}) != nil }
