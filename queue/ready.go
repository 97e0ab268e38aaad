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

// Ready says why no tasks can be taken, nil when they can: what they need is there (see
// [ServerConfig.Available]), a task could be taken from each queue, and a lock can be taken.
// So it tells a Redis that does not answer from one that is a replica, that is full, or whose user lacks the
// rights. It costs a call for each asynq queue and two for the lock, takes no task, and
// leaves nothing in Redis but the fence of the lock for its retention.
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
	// Each server asks for a lock of its own, so that none finds it held.
	err := s.Locker().Hold(ctx, s.probed, &lock.Options{Holder: "probe of " + s.guard.self}, func(context.Context) error { return nil })
	if err != nil && !errors.Is(err, lock.ErrBusy) { // by another probe of this server
		return fmt.Errorf("queue: no lock can be taken: %w", err)
	}
	return nil
}

// probe tries whether a task could be taken from each queue.
func (s *Server) probe(ctx context.Context) error {
	queues := slices.Sorted(maps.Keys(shardQueues(s.cfg.Queues, s.cfg.Shards)))
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

// whatFailed says in words whether Redis answered.
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
