package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/hook"
	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/lock"
)

// Middleware guards the tasks that pass through it. Use it on the outermost mux, before other
// middleware. A task that does not get its lock waits, even if middleware around the guard's
// changes the error. A task whose handler has returned nil is done when the guard's handler
// returns. An error that middleware around the guard's then returns comes too late. The task stays
// done, and a warning is logged. A task that passes through it twice is locked once. Without next it
// returns nil, which asynq's server refuses.
func (g *Guard) Middleware(next asynq.Handler) asynq.Handler {
	if next == nil {
		return nil // asynq's server does not start with it
	}
	g.hook.Guarded()
	return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		resource, err := g.resourceOf(t)
		if err != nil {
			return Permanent(err)
		}
		if around, ok := ctx.Value(runKey{}).(*run); ok && around.Guard == g && around.info.Resource == resource {
			return next.ProcessTask(ctx, t)
		}
		err = g.process(ctx, t, resource, next)
		if other, ok := errors.AsType[*otherResourceError](err); ok {
			err = g.process(ctx, t, other.resource, next)
		}
		return err
	})
}

// resourceOf returns the resource of a task, "" if the task is not guarded. The payload counts, as
// the payload or its [ResourceFunc] may have changed since the task got its header.
func (g *Guard) resourceOf(t *asynq.Task) (string, error) {
	resource, guarded := t.Headers()[HeaderResource]
	if name, ok := g.cfg.Resources[t.Type()]; ok {
		var err error
		if resource, err = name(t.Payload()); err != nil {
			return "", fmt.Errorf("%s: resource: %w", t.Type(), err)
		}
	} else if !guarded {
		if name, ok := g.typed[t.Type()]; ok {
			resource = name(t.Payload())
		}
		if resource == "" {
			return "", nil
		}
	}
	return resource, checkResource(t.Type(), resource)
}

func checkResource(kind, resource string) error {
	if err := store.CheckResource(resource); err != nil {
		return fmt.Errorf("%s: resource: %w", kind, err)
	}
	return nil
}

// Permanent wraps the error of a handler to say that no retry can mend it. The task is archived at
// once, whatever retries it has left. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
}

// An otherResourceError is returned instead of calling a handler. The task's payload names another
// resource than the one that is locked.
type otherResourceError struct{ kind, resource string }

func (e *otherResourceError) Error() string {
	return e.kind + ": resource: the payload names another one each time it is read, now " + e.resource
}

// Unwrap has asynq archive a task that gets this error twice.
func (e *otherResourceError) Unwrap() error { return asynq.SkipRetry }

// A run is one attempt of a guarded task.
type run struct {
	*Guard

	task    *asynq.Task
	info    Info
	attempt *hook.Attempt // nil if the connection is not the guard's, see checkParts
	path    path          // the guard's, as a rule
	queued  *lease.Lease  // of the lock for which tasks wait, which differs with an external store
	policy  *Policy       // nil for a task that parks
	advance int64         // how much earlier its priority has it come in the wait queue, µs
	again   bool          // see comesAgain

	waitedAtWork bool // see waitAtWork
}

// runKey is the key under which the context of a guarded handler carries its run.
type runKey struct{}

// infoOf returns what asynq knows of the attempt under which ctx runs.
func infoOf(ctx context.Context, t *asynq.Task) Info {
	info := Info{Kind: t.Type()}
	info.ID, _ = asynq.GetTaskID(ctx)
	info.Queue, _ = asynq.GetQueueName(ctx)
	info.Retried, _ = asynq.GetRetryCount(ctx)
	info.Retries, _ = asynq.GetMaxRetry(ctx)
	return info
}

// log returns the guard's logger with what names the task.
func (r *run) log() *slog.Logger {
	return r.cfg.Logger.With("task_id", r.info.ID, "task_kind", r.info.Kind, "queue", r.info.Queue, "resource", r.info.Resource)
}

// process runs a task under the lock of its resource, if it has one.
func (g *Guard) process(ctx context.Context, t *asynq.Task, resource string, next asynq.Handler) error {
	// The call counts from here on, so that Wait never sees the count rise from zero.
	g.work.Add(1)
	defer g.work.Done()
	if ctx.Err() != nil {
		return context.Cause(ctx) // asynq has given the attempt up, and there may be a later one of this id
	}
	r := &run{Guard: g, task: t, info: infoOf(ctx, t), path: g.path}
	r.info.Resource = resource
	r.attempt = g.hook.Attempt(r.info.Queue, r.info.ID)
	if r.attempt != nil {
		defer r.attempt.Running(ctx)()
	}
	if resource == "" {
		return r.unguarded(ctx, next)
	}
	if err := r.readHeaders(); err != nil {
		return Permanent(err)
	}
	if err := r.checkParts(ctx); err != nil {
		return err
	}
	if !r.attempt.Seen() {
		r.path = unqueuedPath{}
	}
	held, err := r.path.acquire(ctx, r)
	if ended, ok := errors.AsType[*endedError](err); ok {
		return ended.err
	}
	if err != nil {
		return err
	}
	if r.queued == nil {
		r.queued = held
	}
	waited, late, err := r.tooLate(ctx)
	if !late && err == nil {
		return r.hold(ctx, held, next)
	}
	_, rerr := r.releaseAll(ctx, held, false)
	r.notReleased(ctx, rerr)
	if err != nil {
		return err
	}
	return r.waitedTooLong(ctx, waited)
}

// readHeaders reads what the headers of the task say of its wait.
func (r *run) readHeaders() (err error) {
	if r.policy, err = r.policyOf(r.task); err == nil {
		r.advance, err = advanceOf(r.task)
	}
	return err
}

// unguarded runs a task that has no resource.
func (r *run) unguarded(ctx context.Context, next asynq.Handler) error {
	if r.attempt == nil {
		return r.runUnguarded(ctx, next)
	}
	if r.attempt.EarlierUnacknowledged() {
		return r.parkUnqueued(r.overlapping(), lock.ErrLost)
	}
	r.granted(ctx) // a payload may look like a header: the lock that was taken for that is released
	err := r.runUnguarded(ctx, next)
	if err != nil {
		return err
	}
	if f := r.attempt.Finish(); f != nil {
		defer f.Close()
		r.send(ctx, f)
	}
	return nil
}

// runUnguarded runs the handler of a task that has no resource.
func (r *run) runUnguarded(ctx context.Context, next asynq.Handler) error {
	r.cfg.Observe(r.event(EventStarted))
	start, err := time.Now(), errNotReturned
	defer func() {
		ev := r.event(EventFinished)
		ev.Held, ev.Err = time.Since(start), err
		r.cfg.Observe(ev)
	}()
	err = next.ProcessTask(ctx, r.task)
	r.noteUnguarded(r.info.Kind)
	return r.parkUnavailable(err)
}

// noteUnguarded logs, once a day for each kind, that its tasks run unguarded, where Resources guards
// other kinds. So a kind that is misspelt in Resources does not stay unknown.
func (g *Guard) noteUnguarded(kind string) {
	if len(g.cfg.Resources) == 0 {
		return
	}
	if first, _ := g.unguardedKinds.allow(kind); first {
		g.cfg.Logger.InfoContext(g.background, "a task runs unguarded, as it has no header and Resources does not have its kind",
			"task_kind", kind, "guarded_kinds", slices.Sorted(maps.Keys(g.cfg.Resources)))
	}
}

func (r *run) event(kind EventKind) Event {
	return Event{Kind: kind, TaskID: r.info.ID, TaskKind: r.info.Kind, Queue: r.info.Queue, Resource: r.info.Resource}
}
