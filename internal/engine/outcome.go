package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/taskredis"
)

// errShutdown ends the contexts of handlers that are still at work when the time of a shutdown is over.
// errors.Is finds context.Canceled, which is what asynq's server ends them with.
var errShutdown error = &putBackError{fmt.Errorf("the server shuts down: %w", context.Canceled)}

// ErrGoexit is the error of a handler that ended its goroutine by runtime.Goexit.
var ErrGoexit = errors.New("the handler ended its goroutine (runtime.Goexit)")

// ErrNotBegun is the error of a handler that has not begun its work, and leaves it to a later attempt: the task comes again at once,
// in its place, and uses no retry.
var ErrNotBegun error = &putBackError{errors.New("the task has not begun")}

// ErrPutBack matches the error of a run whose task comes again at once, in its place, and uses no retry, as its handler or a shutdown
// has put it back.
var ErrPutBack = errors.New("the task was put back")

type putBackError struct{ error }

func (e *putBackError) Unwrap() error        { return e.error }
func (e *putBackError) Is(target error) bool { return target == ErrPutBack }

// OfShutdown returns the error of a handler, as one that matches [ErrPutBack] if a shutdown has ended ctx, which is the handler's.
func OfShutdown(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errShutdown) {
		return &putBackError{err}
	}
	return err
}

// A SnoozeError is the error of a handler that could not begin its work. The task comes again After, in its place, and
// uses no retry.
type SnoozeError struct {
	Err    error
	After  time.Duration
	Waits  bool // it counts as a wait for its lock
	AtHead bool // those behind it in its line wait until then
	// MaxWait is how long the task may wait from now on; 0 for as long as it takes.
	MaxWait time.Duration
}

func (e *SnoozeError) Error() string { return e.Err.Error() }

// Unwrap returns what kept the handler from its work.
func (e *SnoozeError) Unwrap() error { return e.Err }

// An OtherResourceError is the error of a handler that has found out that its task has another resource. The handler is called
// again, once, under the lock of that one.
type OtherResourceError struct{ Resource string }

func (e *OtherResourceError) Error() string {
	return "the resource is another one each time it is asked for, now " + store.Show(e.Resource)
}

// Unwrap has a task archived that gets this error twice.
func (e *OtherResourceError) Unwrap() error { return asynq.SkipRetry }

// A LostError is the error of a handler that has lost what protected its work: its lock, or a write was refused as there has been
// another holder. What else the handler said does not count.
type LostError struct {
	Err  error
	Last bool // the task comes behind those who wait
}

func (e *LostError) Error() string { return e.Err.Error() }

// Unwrap returns what was lost.
func (e *LostError) Unwrap() error { return e.Err }

// outcomeOf returns what becomes of an attempt whose handler has returned err. What the handler returned counts, also
// after the task's time was over or an operator has canceled it; but not if its lock was lost, as then somebody else
// may have been at work.
func (l *loop) outcomeOf(ctx context.Context, a *attempt, err error) taskredis.Outcome {
	o := l.holding(a, l.judge(ctx, a, err))
	o.Lock = a.lock() // a member counts only while the first of its batch has it
	return o
}

// holding has an outcome hold the line of its task, if that is to. One that has waited for too long, or was not to wait, holds none:
// also if it has the lock by then, or still that of another resource.
func (l *loop) holding(a *attempt, o taskredis.Outcome) taskredis.Outcome {
	switch o.Kind { //nolint:exhaustive // the others keep no task, or keep its place
	case taskredis.Retry, taskredis.Snooze, taskredis.Archive:
		o.Hold = a.lock() != "" && !o.AtHead && !a.waitOver() && !a.refused && l.cfg.holds(a.message, o.Kind)
	}
	return o
}

func (l *loop) judge(ctx context.Context, a *attempt, err error) taskredis.Outcome {
	cause := context.Cause(a.ctx) //nolint:contextcheck // that of the attempt says why it ended
	snoozed, loss := (*SnoozeError)(nil), (*LostError)(nil)
	switch {
	case errors.As(err, &loss):
		return l.lostOutcome(a, loss)
	case a.lost.Load(): // it frees the lock if that is there, as Redis may only have been silent
		return l.lostOutcome(a, nil)
	case err == nil:
		return l.succeeded(a)
	case errors.Is(cause, errShutdown), errors.Is(err, ErrNotBegun):
		return taskredis.Outcome{Name: a.Name, Kind: taskredis.Requeue, Begun: a.task != nil && !a.waitOver() && !errors.Is(err, ErrNotBegun)}
	case errors.As(err, &snoozed):
		o := l.snooze(a, err, snoozed.After, a.Losses)
		o.Waits, o.AtHead, o.MaxWait = snoozed.Waits, snoozed.AtHead, snoozed.MaxWait
		return o
	case errors.Is(err, store.ErrStale):
		return l.lostOutcome(a, &LostError{Err: err})
	}
	return l.failed(ctx, a, err)
}

func (l *loop) succeeded(a *attempt) taskredis.Outcome {
	o := taskredis.Outcome{Name: a.Name, Kind: taskredis.Done, Unique: a.message.Frees(taskredis.Done)}
	if a.message.Retention > 0 {
		now := time.Now().Unix()
		m := *a.message
		m.CompletedAt = now
		o.Kind, o.Message, o.After = taskredis.Complete, m.Encode(), time.Duration(m.Retention)*time.Second
	}
	return o
}

// failed is asynq's: the task is deleted, archived, or tried again after a delay.
func (l *loop) failed(ctx context.Context, a *attempt, err error) taskredis.Outcome {
	m := *a.message
	a.failure = err
	if l.cfg.OnError != nil {
		tell(ctx, l.logger, "ErrorHandler", func() { l.cfg.OnError(ctx, l.taskOf(a), err) })
	}
	if errors.Is(err, asynq.RevokeTask) {
		return taskredis.Outcome{Name: a.Name, Kind: taskredis.Done, Unique: m.Frees(taskredis.Done)}
	}
	m.ErrorMsg, m.LastFailedAt = fmt.Sprint(err), time.Now().Unix() // Error panics on a nil pointer, Sprint does not
	if m.Retried >= m.Retry || errors.Is(err, asynq.SkipRetry) {
		return taskredis.Outcome{Name: a.Name, Kind: taskredis.Archive, Message: m.Encode(), Unique: m.Frees(taskredis.Archive)}
	}
	failure := l.cfg.isFailure(ctx, err)
	delay := l.cfg.retryDelay(ctx, &m, err)
	if failure {
		m.Retried++
	}
	return taskredis.Outcome{Name: a.Name, Kind: taskredis.Retry, Message: m.Encode(), After: delay, Counts: failure, WaitOver: a.waitOver()}
}

// isFailure and retryDelay ask the user's functions about an error. Each caller asks in the order in which asynq does.
func (cfg *Config) isFailure(ctx context.Context, err error) bool {
	return protect(ctx, cfg.Logger, "IsFailure", true, func() bool { return cfg.IsFailure(err) })
}

func (cfg *Config) retryDelay(ctx context.Context, m *Message, err error) time.Duration {
	task := AsynqTask(m)
	return protect(ctx, cfg.Logger, "RetryDelayFunc", asynq.DefaultRetryDelayFunc(m.Retried, err, task), func() time.Duration {
		return cfg.RetryDelay(m.Retried, err, task)
	})
}

// waitOver reports whether the task has waited for too long.
func (a *attempt) waitOver() bool { return a.task != nil && a.task.WaitOver }

// taskOf returns the attempt as its handler has seen it, or would have.
func (l *loop) taskOf(a *attempt) *Task {
	if a.task != nil {
		return a.task
	}
	return &Task{Message: a.message, Taken: &a.Taken, Resource: l.resource(a), EndsBy: a.endsBy}
}

// snooze has a task come again without a retry. Its error is no failure, which shows in that it has no time.
func (l *loop) snooze(a *attempt, err error, after time.Duration, losses int) taskredis.Outcome {
	m := *a.message
	m.ErrorMsg, m.LastFailedAt = fmt.Sprint(err), 0 // as in failed
	return taskredis.Outcome{Name: a.Name, Kind: taskredis.Snooze, Message: m.Encode(), After: after, WaitOver: a.waitOver(), Losses: losses}
}

// lostOutcome is what becomes of an attempt that has lost its lock: the task comes again, after a second at first and
// then twice as long each time. After so many losses one is a failure of the task's own, so that a task which can
// never finish comes to an end.
//
//	loss  what its handler has said of that; nil if it had returned before anybody knew
func (l *loop) lostOutcome(a *attempt, loss *LostError) taskredis.Outcome {
	if loss == nil && l.cfg.Lost != nil && a.task != nil {
		loss = protect(a.handlerCtx, l.logger, "Lost", nil, func() *LostError { return l.cfg.Lost(a.handlerCtx, a.task) })
	}
	if loss == nil {
		loss = &LostError{Err: fmt.Errorf("%s: %w", store.Show(l.resource(a)), store.ErrLost)}
	}
	a.loss, a.failure = loss, nil
	if a.Losses >= l.cfg.Losses {
		return l.failed(a.handlerCtx, a, loss.Err)
	}
	o := l.snooze(a, loss.Err, min(time.Second<<min(a.Losses, 6), time.Minute), a.Losses+1)
	o.Last = loss.Last
	return o
}
