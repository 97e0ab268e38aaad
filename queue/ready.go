package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/lock"
)

// Ready returns why the server can take no tasks, and nil if it can. Then [GuardConfig.Available]
// returns nil, Redis gives tasks from each queue, and a lock can be taken. Ready fails on a Redis
// that does not answer, is a replica, is full, or denies the user a right. Ready costs a call for
// each asynq queue and two for the lock. No task is taken. The fence of that lock stays in Redis
// for its retention, and nothing else.
func (s *Server) Ready(ctx context.Context) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	if missing := s.guard.missing.Load(); missing != nil {
		return fmt.Errorf("queue: no tasks are taken: %w", *missing)
	}
	if err := s.guard.available(ctx); err != nil {
		return fmt.Errorf("queue: not available: %w", err)
	}
	if err := s.probe(ctx); err != nil {
		return err
	}
	// Each server takes a lock of its own, which no other server holds.
	err := s.Locker().Do(ctx, s.probed, &lock.Options{Holder: "probe of " + s.guard.self}, func(context.Context) error { return nil })
	if err != nil && !errors.Is(err, lock.ErrBusy) { // by another probe of this server
		return fmt.Errorf("queue: no lock can be taken: %w", err)
	}
	return nil
}

// probe asks Redis for each queue whether a task could be taken.
func (s *Server) probe(ctx context.Context) error {
	queues := slices.Sorted(maps.Keys(shardQueues(s.cfg.Asynq.Queues, s.cfg.Shards)))
	errs := make([]error, len(queues))
	var all sync.WaitGroup
	for i, queue := range queues {
		all.Go(func() { errs[i] = s.guard.hook.Probe(ctx, s.locks, queue) })
	}
	all.Wait()
	if err := cmp.Or(errs...); err != nil {
		return fmt.Errorf("queue: %s: %w", whatFailed(err), err)
	}
	return nil
}

// whatFailed names the kind of fault: Redis refuses, another program answers, or none does.
func whatFailed(err error) string {
	if refusedByRedis(err) {
		return "redis refuses"
	}
	// go-redis has no type for an answer that it cannot read.
	if text := err.Error(); strings.Contains(text, "redis: invalid reply") || strings.Contains(text, "redis: can't parse") {
		return "what answers is no redis"
	}
	return "redis does not answer"
}

const (
	// availableEvery is how often a guard that takes no tasks asks [GuardConfig.Available].
	availableEvery = time.Second
	// availablePatience bounds each of these calls.
	availablePatience = 5 * time.Second
)

// Unavailable wraps the error of a handler to say that something is missing which all tasks need,
// such as their database. The task uses no retry and comes again after a second or so. The server
// takes no more tasks until [GuardConfig.Available] returns nil. Without an Available the server
// takes none for a second. Unavailable(nil) is nil.
func Unavailable(err error) error {
	if err == nil {
		return nil
	}
	return &unavailableError{err}
}

// ErrUnavailable matches what [Unavailable] returns, for middleware and observers. The task is parked,
// uses no retry, and runs when what was missing is there again.
var ErrUnavailable = errors.New("queue: unavailable")

type unavailableError struct{ error }

func (e *unavailableError) Unwrap() error        { return e.error }
func (e *unavailableError) Is(target error) bool { return target == ErrUnavailable }

// parkUnavailable parks a task whose handler says that something is missing, and stops the taking
// of tasks. Any other err is returned as it is.
func (r *run) parkUnavailable(err error) error {
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
				g.hook.Open()
				g.missing.Store(nil) // after Open, which would else undo a shut in between
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
