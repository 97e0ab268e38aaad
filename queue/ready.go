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

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/redisreply"
	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/lock"
)

// Ready returns why the server can take no tasks, and nil if it can, or could after a Start. Then no
// Stop was called, [ServerConfig.Available] returns nil, Redis gives tasks from each queue, and a lock
// can be taken. Ready fails on a Redis that does not answer, is a replica, is full, or denies the user
// a right. Ready costs a call for each asynq queue and two for the lock. No task is taken. The fence
// of that lock stays in Redis for its retention, and nothing else. Once the server was shut down, the
// error matches asynq.ErrServerClosed.
func (s *Server) Ready(ctx context.Context) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	if s.isShutDown() {
		return errShutDown
	}
	err := s.ready(ctx)
	if err != nil && s.isShutDown() { // meanwhile, which closes the client
		return errShutDown
	}
	return err
}

func (s *Server) isShutDown() bool { return s.background.Err() != nil }

func (s *Server) ready(ctx context.Context) error {
	s.mu.Lock()
	stopped := s.stopped
	s.mu.Unlock()
	if stopped {
		return errors.New("queue: no tasks are taken: the server was stopped")
	}
	if missing := s.missing.Load(); missing != nil {
		return fmt.Errorf("queue: no tasks are taken: %w", *missing)
	}
	if err := s.available(ctx); err != nil {
		return fmt.Errorf("queue: not available: %w", err)
	}
	if err := s.probe(ctx); err != nil {
		return err
	}
	// Each server takes a lock of its own, which no other server holds.
	err := s.Locker().Do(ctx, s.probed, &lock.Options{Holder: lease.Note("probe of " + s.self)}, func(context.Context) error { return nil })
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
		all.Go(func() {
			errs[i] = taskredis.Probe(ctx, s.rdb, queue)
			if refusedByRedis(errs[i]) { // the rights of its user may be by queue
				errs[i] = fmt.Errorf("tasks of the queue %s: %w", queue, errs[i])
			}
		})
	}
	all.Wait()
	if err := cmp.Or(errs...); err != nil {
		return &redisreply.CallError{Err: fmt.Errorf("queue: %s: %w", whatFailed(err), err)}
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

// refusedByRedis reports whether Redis answered with an error.
func refusedByRedis(err error) bool {
	_, ok := errors.AsType[redis.Error](err)
	return ok
}

const (
	// availableEvery is how often a server that takes no tasks asks [ServerConfig.Available].
	availableEvery = time.Second
	// availablePatience bounds each of these calls.
	availablePatience = 5 * time.Second
	// availableAtOnce is how many of them may be under way: one that never returns does not stop the asking, and they do not add up.
	availableAtOnce = 10
)

// Unavailable wraps the error of a handler to say that something is missing which all tasks need,
// such as their database. The task uses no retry and comes again after a second or so. The server
// takes no more tasks until [ServerConfig.Available] returns nil. Without an Available the server
// takes none for a second. Unavailable(nil) is nil.
func Unavailable(err error) error {
	if err == nil {
		return nil
	}
	return &unavailableError{err}
}

// ErrUnavailable matches what [Unavailable] returns, for middleware and observers. The task comes again,
// uses no retry, and runs when what was missing is there again.
var ErrUnavailable = errors.New("queue: unavailable")

// An unavailableError is all that its error is, but does not give the task up: what is missing is not the task's fault.
type unavailableError struct{ error }

func (e *unavailableError) As(target any) bool { return errors.As(e.error, target) }

func (e *unavailableError) Is(target error) bool {
	return target == ErrUnavailable || target != asynq.SkipRetry && target != asynq.RevokeTask && errors.Is(e.error, target)
}

// shut stops the server from taking tasks, until Available returns nil.
func (s *Server) shut(missing error) {
	if !s.missing.CompareAndSwap(nil, &missing) {
		return // no tasks are taken already
	}
	s.cfg.Logger.ErrorContext(s.background, "no tasks are taken, as something is missing that they need", "error", missing)
	since := time.Now()
	go func() {
		select {
		case <-s.started: // a task may be quicker than Start
		case <-s.background.Done():
			return
		}
		hold := func(on bool) { _ = s.engine.Suspend(s.background, on) } // an error says that the server ends
		hold(true)
		for sleep.For(s.background, availableEvery) == nil {
			if s.available(s.background) == nil {
				hold(false)
				s.missing.Store(nil) // after that, which would else undo a shut in between
				s.cfg.Logger.InfoContext(s.background, "tasks are taken again", "after_s", time.Since(since).Round(time.Millisecond).Seconds())
				return
			}
		}
	}()
}

// available calls [ServerConfig.Available], and waits for it no longer than until ctx ends, or its patience: it may never return,
// or end its goroutine.
func (s *Server) available(ctx context.Context) error {
	if s.cfg.Available == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, availablePatience)
	defer cancel()
	answer := make(chan error, 1)
	select {
	case s.asks <- struct{}{}:
		go func() {
			err := errors.New("queue: Available has ended its goroutine (runtime.Goexit)")
			defer func() {
				if p := recover(); p != nil {
					err = fmt.Errorf("queue: Available has panicked: %v", p)
				}
				<-s.asks
				answer <- err
			}()
			err = s.cfg.Available(ctx)
		}()
	case <-ctx.Done():
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return fmt.Errorf("queue: Available has not returned: %w", ctx.Err())
	}
}
