package queue

import (
	"context"
	"errors"
	"time"

	"github.com/sidingq/siding/internal/sleep"
)

const (
	// availableEvery is how often a guard that takes no tasks asks [GuardConfig.Available].
	availableEvery = time.Second
	// availablePatience bounds each of these calls.
	availablePatience = 5 * time.Second
)

// Unavailable wraps the error of a handler to say that something is missing which all tasks need,
// such as the database to which they write. The task uses no retry and comes again after a second
// or so. The server takes no more tasks until [GuardConfig.Available] returns nil. Without an
// Available it takes none for a second. Unavailable(nil) is nil.
func Unavailable(err error) error {
	if err == nil {
		return nil
	}
	return &unavailableError{err}
}

type unavailableError struct{ error }

func (e *unavailableError) Unwrap() error { return e.error }

// standBy parks a task whose handler says that something is missing, and stops the taking of tasks.
// It returns any other error as it is.
func (r *run) standBy(err error) error {
	missing, ok := errors.AsType[*unavailableError](err)
	if !ok {
		return err
	}
	r.shut(missing.error)
	// The error leaves out the handler's own error, in which asynq would find a SkipRetry or
	// RevokeTask.
	return r.parkUnqueued(err.Error(), nil)
}

// shut stops the servers of the guard from taking tasks, until Available returns nil.
func (g *Guard) shut(missing error) {
	if !g.missing.CompareAndSwap(nil, &missing) {
		return // no tasks are taken already
	}
	g.hook.Shut()
	g.cfg.Logger.ErrorContext(g.background, "no tasks are taken, as something is missing that they need", "error", missing)
	since := time.Now()
	g.work.Go(func() {
		for sleep.For(g.background, availableEvery) == nil {
			if g.available(g.background) == nil {
				g.missing.Store(nil)
				g.hook.Open()
				g.cfg.Logger.InfoContext(g.background, "tasks are taken again", "after", time.Since(since).Round(time.Millisecond))
				return
			}
		}
	})
}

// available calls [GuardConfig.Available].
func (g *Guard) available(ctx context.Context) error {
	if g.cfg.Available == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, availablePatience)
	defer cancel()
	return g.cfg.Available(ctx)
}
