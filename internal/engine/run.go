package engine

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/redisreply"
	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/taskredis"
)

// InfoKey is the key under which a handler's context has what queue.InfoFrom returns. It is here for those who run handlers
// otherwise, as queuetest does.
type InfoKey struct{}

// TaskKey is likewise the key of what queue.AsynqTask returns.
type TaskKey struct{}

// WaitKey is the key under which a handler's context has the queue.Event of the wait that has ended for it, if any. It is here for
// queueotel.
type WaitKey struct{}

// runAttempt runs an attempt from its start to its report:
//
//	which resource? ── another than the lock that came with it ──> ask for that lock, and wait for the answer
//	handler ──> outcome ──> report
//
// Whatever the functions of the user do, there is one report of its end; none if it is over with its ask, as the lock was busy and
// the task waits in Redis, or as the loop has given it up. Once the loop has ended, nobody takes the report.
func (l *loop) runAttempt(a *attempt) {
	defer a.member.leave()
	defer l.atWork.Add(int64(-a.slots))
	defer a.cancel(nil)
	ctx := a.ctx
	a.handlerCtx = ctx
	outcome := taskredis.Outcome{}
	defer func() {
		if p := recover(); p != nil { // of this package: the handler's are caught below
			l.logger.ErrorContext(ctx, "a task could not be run", "queue", a.Queue, "task_id", a.ID, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
		if outcome.Kind == "" {
			a.err = ErrGoexit
			if a.task == nil { // it was not the handler, but what says which resource the task needs
				a.err = fmt.Errorf("%w: %w", broken(nil), asynq.SkipRetry)
			}
			outcome = l.outcomeOf(ctx, a, a.err)
		}
		if a.task != nil && a.task.batch != nil {
			a.task.batch.endAll(a.err)
		}
		if outcome.Kind != goneKind {
			l.send(report{attempt: a, outcome: outcome})
		}
	}()

	if l.cfg.BaseContext != nil {
		ctx = l.baseContext(a)
	}
	ctx, stop := context.WithDeadline(ctx, a.endsBy)
	defer stop()
	a.handlerCtx = ctx
	need, err := l.needOf(a)
	if err != nil {
		outcome = l.outcomeOf(ctx, a, fmt.Errorf("%w: %w", err, asynq.SkipRetry))
		return
	}
	if a.Fence == taskredis.DeadlineOver && a.Waited {
		err := fmt.Errorf("its deadline passed while it waited for %s: %w: %w", store.Show(need.Resource), context.DeadlineExceeded, asynq.SkipRetry)
		outcome = l.outcomeOf(ctx, a, err)
		return
	}
	if err := ctx.Err(); err != nil { // it was to end before it began
		outcome = l.outcomeOf(ctx, a, err)
		return
	}
	for range 2 { // as the handler may say once that its task has another resource
		var refusal *Refusal
		if need.Resource != "" && l.lockOf(a, need.Resource) != store.LocksOf(a.lock()) {
			if a.member != nil { // it is to ask for its own lock, as any task does
				outcome = taskredis.Outcome{Name: a.Name, Kind: taskredis.Requeue}
				return
			}
			var here bool
			if refusal, here = l.ask(a, need); !here {
				outcome.Kind = goneKind
				return
			}
			if err := ctx.Err(); err != nil { // meanwhile
				outcome = l.outcomeOf(ctx, a, err)
				return
			}
		}
		a.task = &Task{Message: a.message, loop: l, attempt: a, Taken: &a.Taken, Resource: need.Resource, Began: time.Now(), EndsBy: a.endsBy, WaitOver: a.Fence == taskredis.WaitOver}
		other := (*OtherResourceError)(nil)
		if a.refused = refusal != nil; a.refused {
			a.err = l.refused(ctx, a.task, *refusal)
		} else if a.err = l.handle(ctx, a.task); errors.As(a.err, &other) {
			need.Resource, need.Priority = other.Resource, 0 // the head start is in its place already
			continue
		}
		break
	}
	outcome = l.outcomeOf(ctx, a, a.err)
	if trace := a.task.trace.Load(); trace != nil {
		outcome.Trace = *trace
	}
}

// goneKind says that an attempt is over and has nothing to report.
const goneKind taskredis.Kind = "gone"

// ask asks for a lock by the next step, and waits for the answer: nil if the attempt has the lock now. It returns false if the
// attempt is over, and is not to report.
func (l *loop) ask(a *attempt, need Need) (refusal *Refusal, here bool) {
	l.send(report{attempt: a, outcome: taskredis.Outcome{
		Name: a.Name, Kind: taskredis.Ask, Want: l.lockOf(a, need.Resource), Priority: need.Priority, Policy: need.Policy, Until: a.message.Deadline, Once: a.message.Retry == 0,
		Always: a.message.AlwaysUnique(),
	}})
	l.atWork.Add(-1)
	defer l.atWork.Add(1)
	select {
	case refusal, here = <-a.granted:
		return refusal, here
	case <-l.done:
		return nil, false
	}
}

// Begin writes down that the handler of a guarded task without retries begins, or that a task has WaitOver. Without that the
// handler would run if the server dies. It is called once the task has all its locks, also those that the engine does not take.
// While Redis refuses for a time, or does not answer, the task keeps its lock, and so its place. An error says that it cannot
// begin now.
func (t *Task) Begin(ctx context.Context) error {
	a, l := t.attempt, t.loop
	if a.Lock == "" || !t.WaitOver && (t.Retry > 0 || l.cfg.NoRetriesToo) {
		return nil
	}
	for {
		latest, err := l.calls.Began(ctx, a.Name, t.WaitOver)
		switch {
		case err == nil && latest:
			return nil
		case err == nil:
			return &LostError{Err: store.ErrLost}
		case redisreply.Answered(err) && !redisreply.Transient(err) || sleep.For(ctx, refusedPause) != nil:
			return &SnoozeError{Err: err, After: refusedPause, AtHead: true}
		}
	}
}

// refused asks what becomes of a task that is not to wait.
func (l *loop) refused(ctx context.Context, t *Task, r Refusal) error {
	_, err := caught(func() (struct{}, error) { return struct{}{}, l.cfg.Refused(ctx, t, r) })
	return err
}

// lockOf returns the key of the lock of a resource, or those of several.
func (l *loop) lockOf(a *attempt, resource string) string {
	locks := store.Names(resource)
	for i, name := range locks {
		locks[i] = taskredis.LockPrefix(l.scopeOf(a.Queue), l.cfg.Prefix) + name
	}
	return store.JoinLocks(locks)
}

// needOf returns what a task needs.
func (l *loop) needOf(a *attempt) (Need, error) {
	if l.cfg.Need == nil || a.Fence == taskredis.WaitOver {
		return Need{Resource: l.resource(a)}, nil
	}
	need, err := caught(func() (Need, error) { return l.cfg.Need(a.message, l.resource(a)) })
	if a.Losses > 0 { // its handler may have begun, though an operator who takes its lock ends its place
		need.Policy = taskredis.Policy{MaxWait: need.Policy.MaxWait}
	}
	return need, err
}

// resource returns the resource under whose lock an attempt runs.
func (l *loop) resource(a *attempt) string { return l.resourceOf(a.Queue, a.lock()) }

// resourceOf returns the resource of a lock, or of its permit, that tasks of a queue take; or several.
func (l *loop) resourceOf(queue, lock string) string {
	resources := store.SplitLocks(lock)
	for i, key := range resources {
		resources[i] = strings.TrimPrefix(store.LockOf(key), taskredis.LockPrefix(l.scopeOf(queue), l.cfg.Prefix))
	}
	return store.Join(resources...)
}

// handle calls the handler, and makes an error of its panic.
func (l *loop) handle(ctx context.Context, t *Task) (err error) {
	defer func() {
		if p := recover(); p != nil {
			l.logger.ErrorContext(ctx, "a handler has panicked", "task_kind", t.Type, "task_id", t.ID, "stack", string(debug.Stack()))
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

// panicked makes an error of what a deferred function has recovered. Unlike broken it always has the value, as asynq's error
// does. asynq names a file of Go if that has panicked, as at an index out of range; this is the line of the user.
func panicked(p any) error { return &panicError{"panic" + where() + ": " + fmt.Sprint(p)} }

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
