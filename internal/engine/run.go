package engine

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"strings"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/taskredis"
)

// runAttempt runs an attempt from its start to its report, in a goroutine of its own:
//
//	which resource? ── another than the lock that came with it ──> ask for that lock, and wait for the answer
//	handler ──> outcome ──> report
//
// Whatever the functions of the user do, there is one report; unless the lock that it asked for was busy. Then the
// task waits in Redis, and its attempt is over. Once the loop has ended, nobody takes the report.
func (l *loop) runAttempt(a *attempt) {
	defer a.cancel(nil)
	ctx := a.ctx
	outcome := taskredis.Outcome{}
	defer func() {
		if p := recover(); p != nil { // of this package: the handler's are caught below
			l.logger.ErrorContext(ctx, "a task could not be run", "queue", a.Queue, "id", a.ID, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
		if outcome.Kind == "" {
			outcome = l.outcomeOf(ctx, a, ErrGoexit)
		}
		if outcome.Kind != parkedKind {
			l.send(report{a, outcome})
		}
	}()

	if l.cfg.BaseContext != nil {
		ctx = l.baseContext(a)
	}
	ctx, stop := context.WithDeadline(ctx, a.endsBy)
	defer stop()
	if ctx.Err() != nil { // its deadline passed before it began
		outcome = l.outcomeOf(ctx, a, ctx.Err())
		return
	}
	resource, err := l.resourceOf(a)
	if err != nil {
		outcome = l.outcomeOf(ctx, a, fmt.Errorf("%w: %w", err, asynq.SkipRetry))
		return
	}
	fence := a.Fence
	if resource != "" && l.lockOf(a, resource) != taskredis.LockOf(a.Lock) {
		var granted bool
		if fence, granted = l.ask(a, l.lockOf(a, resource)); !granted {
			outcome.Kind = parkedKind
			return
		}
	}
	for range 2 {
		locked := ctx
		if resource != "" {
			locked = lease.WithFence(ctx, resource, fence)
		}
		a.task = &Task{Message: a.message, Taken: &a.Taken, Resource: resource, EndsBy: a.endsBy}
		a.err = l.handle(locked, a.task)
		other := (*OtherResourceError)(nil)
		if !errors.As(a.err, &other) {
			break
		}
		var granted bool
		resource = other.Resource
		if fence, granted = l.ask(a, l.lockOf(a, resource)); !granted {
			outcome.Kind = parkedKind
			return
		}
	}
	outcome = l.outcomeOf(ctx, a, a.err)
}

// parkedKind says that an attempt is over and has nothing to report.
const parkedKind taskredis.Kind = "parked"

// ask asks for a lock by the next step, and waits for the answer.
func (l *loop) ask(a *attempt, lock string) (fence int64, granted bool) {
	l.send(report{a, taskredis.Outcome{Name: a.Name, Kind: taskredis.Ask, Want: lock, Ticket: a.Ticket, Until: a.message.Deadline}})
	select {
	case fence, granted = <-a.granted:
		return fence, granted
	case <-l.over:
		return 0, false
	}
}

// lockOf returns the key of the lock of a resource.
func (l *loop) lockOf(a *attempt, resource string) string {
	return taskredis.LockPrefix(l.placeOf(a.Queue), l.cfg.Prefix) + resource
}

// resourceOf returns the resource of a task, "" for none.
func (l *loop) resourceOf(a *attempt) (string, error) {
	if l.cfg.Resource == nil {
		return l.resource(a), nil
	}
	return try(func() (string, error) { return l.cfg.Resource(a.message) })
}

// resource returns the resource whose lock an attempt has.
func (l *loop) resource(a *attempt) string {
	return strings.TrimPrefix(taskredis.LockOf(a.Lock), taskredis.LockPrefix(l.placeOf(a.Queue), l.cfg.Prefix))
}

// handle calls the handler, and makes an error of its panic.
func (l *loop) handle(ctx context.Context, t *Task) (err error) {
	defer func() {
		if p := recover(); p != nil {
			l.logger.ErrorContext(ctx, "a handler has panicked", "kind", t.Type, "id", t.ID, "stack", string(debug.Stack()))
			err = panicked(p)
		}
	}()
	return l.cfg.Handler(ctx, t)
}

// A panicError is the error of a handler that has panicked. asynq.IsPanicError knows it. Like asynq's own it wraps nothing: a
// panic with asynq.SkipRetry is retried.
type panicError struct{ text string } // where and with what it has panicked

func (e *panicError) Error() string { return "panic error cause by: " + e.text }

// As makes asynq's error of this one. Its type is in a package of which nobody else can have the name.
func (e *panicError) As(target any) bool {
	to := reflect.ValueOf(target)
	if to.Kind() != reflect.Pointer || to.IsNil() || to.Type().Elem().Kind() != reflect.Pointer {
		return false
	}
	of := to.Type().Elem().Elem()
	if of.Name() != "PanicError" || of.PkgPath() != "github.com/hibiken/asynq/internal/errors" {
		return false
	}
	made := reflect.New(of)
	if text := made.Elem().FieldByName("ErrMsg"); text.Kind() == reflect.String {
		text.SetString(e.text)
	}
	to.Elem().Set(made)
	return true
}

// panicked makes an error of what a deferred function has recovered. asynq names a file of Go if that has panicked, as at an
// index out of range; this is the line of the user.
func panicked(p any) error { return &panicError{"panic" + place() + ": " + fmt.Sprint(p)} }

// baseContext returns the user's context, which ends with the attempt's.
func (l *loop) baseContext(a *attempt) context.Context {
	base := protect(a.ctx, l.logger, "BaseContext", nil, l.cfg.BaseContext)
	if base == nil {
		return a.ctx
	}
	ctx, cancel := context.WithCancelCause(base)
	context.AfterFunc(a.ctx, func() { cancel(context.Cause(a.ctx)) })
	return ctx
}
