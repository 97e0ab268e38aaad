package queue

import (
	"context"
	"errors"
	"time"

	"github.com/sidingq/siding/internal/sleep"
)

const (
	// availableEvery is how often a guard that takes no tasks asks whether it may take them again.
	availableEvery = time.Second
	// availablePatience is how long the answer may take.
	availablePatience = 5 * time.Second
)

// Unavailable wraps the error of a handler to say that something is not there which all tasks
// need, such as the database that they write to. The task is put aside for a second or so,
// uncharged, whatever retries it has left. The server takes no more tasks until
// [ServerConfig.Available] says so, without it for a second. Unavailable(nil) is nil.
func Unavailable(err error) error {
	if err == nil {
		return nil
	}
	return &unavailableError{err}
}

type unavailableError struct{ error }

func (e *unavailableError) Unwrap() error { return e.error }

// standBy returns the handler's error, or what puts the task aside where something is missing
// that all tasks need. Then no more are taken until that is there.
func (r *run) standBy(err error) error {
	missing, ok := errors.AsType[*unavailableError](err)
	if !ok {
		return err
	}
	r.shut(missing.error)
	// Without the handler's own error, in which asynq would find its SkipRetry or RevokeTask.
	return r.sendBack(&unchargedError{reason: err.Error(), after: jitter(unlinedDelay)})
}

// shut has the servers take no more tasks until what was missing is there again.
func (g *Guard) shut(missing error) {
	if !g.missing.CompareAndSwap(nil, &missing) {
		return // it is known already
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

// available asks whether what tasks need is there.
func (g *Guard) available(ctx context.Context) error {
	if g.cfg.Available == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, availablePatience)
	defer cancel()
	return g.cfg.Available(ctx)
}
