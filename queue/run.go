package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/lock"
)

// Middleware guards the tasks that pass through it: use it on the outermost
// mux, before other middleware. A task that does not get its lock waits, also where middleware
// before it makes something else of the error. A task whose handler has returned nil is done
// when the guard's handler returns. If middleware before it then returns an error, that comes too
// late: the task stays done, and a warning is logged.
func (g *Guard) Middleware(next asynq.Handler) asynq.Handler {
	g.hook.Guarded()
	return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		resource, err := g.resourceOf(t)
		if err != nil {
			return Permanent(err)
		}
		err = g.process(ctx, t, resource, next)
		if other, ok := errors.AsType[*otherResourceError](err); ok {
			err = g.process(ctx, t, other.resource, next)
		}
		return err
	})
}

// resourceOf returns "" for a task that is not guarded. A payload may have been changed since the
// task got its header, or what makes a resource of it: the payload counts.
func (g *Guard) resourceOf(t *asynq.Task) (string, error) {
	resource, guarded := t.Headers()[HeaderResource]
	if name, ok := g.cfg.Resources[t.Type()]; ok {
		var err error
		if resource, err = name(t.Payload()); err != nil {
			return "", fmt.Errorf("%s: resource: %w", t.Type(), err)
		}
	} else if !guarded {
		return "", nil
	}
	return resource, checkResource(t.Type(), resource)
}

func checkResource(kind, resource string) error {
	if err := lock.CheckResource(resource); err != nil {
		return fmt.Errorf("%s: resource: %w", kind, err)
	}
	return nil
}

// An otherResourceError is returned by a handler that has not begun, as its task's payload names
// another resource than the one that is locked.
type otherResourceError struct{ kind, resource string }

func (e *otherResourceError) Error() string {
	return e.kind + ": resource: the payload names another one each time it is read, now " + e.resource
}

// Unwrap has asynq archive a task for which this is said twice.
func (e *otherResourceError) Unwrap() error { return asynq.SkipRetry }

// A run is one attempt of a guarded task.
type run struct {
	*Guard

	task    *asynq.Task
	info    Info
	attempt *asynqredis.Attempt // nil where the connection is not the guard's, see unwired
	turn    *lock.Lease         // its turn to have a lock elsewhere
}

// newRun returns the attempt of t under which ctx runs.
func (g *Guard) newRun(ctx context.Context, t *asynq.Task, resource string) *run {
	r := &run{Guard: g, task: t, info: infoOf(ctx, t)}
	r.info.Resource = resource
	r.attempt = g.hook.Attempt(r.info.Queue, r.info.ID)
	return r
}

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
	return r.cfg.Logger.With("task_id", r.info.ID, "task_type", r.info.Kind, "queue", r.info.Queue, "resource", r.info.Resource)
}

// process runs a task under the lock of its resource, if it has one.
func (g *Guard) process(ctx context.Context, t *asynq.Task, resource string, next asynq.Handler) error {
	// Counted from here on, so that Wait never sees a call begin from zero.
	g.work.Add(1)
	defer g.work.Done()
	if ctx.Err() != nil {
		return context.Cause(ctx) // asynq has given the attempt up, and there may be a later one of this id
	}
	r := g.newRun(ctx, t, resource)
	if r.attempt != nil {
		defer r.attempt.Pin(ctx)()
	}
	if resource == "" {
		if r.attempt != nil && r.hook.Beside(r.attempt) {
			return r.makeWay(ctx, nil)
		}
		r.adopt(ctx) // a payload may look like a header: what was taken for it is given back
		err := r.standBy(next.ProcessTask(ctx, t))
		if err == nil {
			r.finish(ctx)
		}
		return err
	}
	if missing := r.unwired(ctx); missing != "" {
		return r.refuse(ctx, missing)
	}
	lease, err := r.acquire(ctx)
	if err != nil {
		return err
	}
	return r.hold(ctx, lease, next)
}

// sendBack puts the task aside with e as its last error.
func (r *run) sendBack(e *unchargedError) error {
	if r.attempt == nil {
		return e // asynq's own retry, not charged by way of Wrap
	}
	park := asynqredis.Park{
		At:     time.Now().Add(e.after),
		Ticket: e.ticket, Resource: r.info.Resource,
		Reason: strings.ToValidUTF8(e.reason, "?"), // a text in an encoded task must be UTF-8
		Done:   func(parked int) { r.parked(parked, e) },
	}
	if e.inLine {
		park.Key = r.locker.Config().Prefix + r.info.Resource
	}
	r.attempt.Park(park)
	return e
}

func (r *run) event(kind EventKind) Event {
	return Event{Kind: kind, TaskID: r.info.ID, TaskKind: r.info.Kind, Queue: r.info.Queue, Resource: r.info.Resource}
}
