package queue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/lock"
)

// Ready returns why the server can take no tasks, and nil if it can. Then [GuardConfig.Available]
// returns nil, Redis gives tasks from each queue, and a lock can be taken. Ready fails on a Redis that
// does not answer, is a replica, is full, or denies the user a right. Ready costs a call for each
// asynq queue and two for the lock. It takes no task. The fence of that lock stays in Redis for its
// retention, and nothing else.
func (s *Server) Ready(ctx context.Context) error {
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
	for _, err := range errs {
		if err != nil {
			return fmt.Errorf("queue: %s: %w", whatFailed(err), err)
		}
	}
	return nil
}

// whatFailed names the kind of fault: Redis refuses, another program answers, or none does.
func whatFailed(err error) string {
	if _, ok := errors.AsType[redis.Error](err); ok {
		return "redis refuses"
	}
	// go-redis has no type for an answer that it cannot read.
	if text := err.Error(); strings.Contains(text, "redis: invalid reply") || strings.Contains(text, "redis: can't parse") {
		return "what answers is no redis"
	}
	return "redis does not answer"
}
