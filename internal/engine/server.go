package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/sidingq/siding/internal/redisreply"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/taskredis"
)

// A Server runs the tasks of some queues, from Start to Shutdown.
type Server struct {
	cfg   Config
	loop  *loop
	calls *taskredis.Steps
	stop  context.CancelFunc
	wg    sync.WaitGroup

	listeners []*listener
}

var (
	// ErrStopped says that the server was shut down before.
	ErrStopped = errors.New("engine: the server was shut down")
	// ErrNotReturned says that no task runs any more when the time of a shutdown is over, but a function of the user, or a
	// call to Redis, has not returned.
	ErrNotReturned = errors.New("engine: no task runs any more, but the server still waits for a function of the program, or for Redis")
)

// New returns a server. Of the configuration only what has a default in asynq may be zero.
func New(cfg Config) *Server { return &Server{cfg: cfg.withDefaults()} }

// Start begins to take tasks. It returns the error of Redis if that does not answer.
func (s *Server) Start(ctx context.Context, rules taskredis.Rules) error {
	sent := time.Now()
	now, err := s.cfg.Redis.Time(ctx).Result()
	if err != nil {
		return startFailed(err)
	}
	queues := slices.Sorted(maps.Keys(s.cfg.Queues))
	own := &taskredis.ServerInfo{
		Host: store.Host(), PID: os.Getpid(), ID: uuid.NewString(), Concurrency: s.cfg.Concurrency, Queues: s.cfg.Queues, Strict: s.cfg.Strict,
		Started: sent, Versions: s.cfg.Versions, Terms: &s.cfg.Terms,
	}
	if _, err := s.compare(ctx, own); err != nil {
		return err
	}
	for _, queue := range queues {
		moved, err := taskredis.TakeOver(ctx, s.cfg.Redis, queue)
		if err != nil {
			return startFailed(err)
		}
		if moved > 0 {
			s.cfg.Logger.InfoContext(ctx, "tasks that waited for an earlier release were taken over", "queue", queue, "tasks", moved)
		}
	}
	if err := s.agree(ctx, own); err != nil {
		return err
	}
	s.calls = &taskredis.Steps{
		Redis: s.cfg.Redis, Session: own.ID, Holder: store.Process(),
		Prefix: s.cfg.Prefix, TTL: s.cfg.TTL, FenceTTL: s.cfg.FenceTTL, Handoff: s.cfg.Handoff, Crashes: s.cfg.Crashes, NoRetriesToo: s.cfg.NoRetriesToo, PolicyKinds: s.cfg.PolicyKinds,
	}
	s.calls.SetRules(rules)
	s.loop = newLoop(&s.cfg, s.calls)
	for _, sc := range s.loop.scopes {
		sc.clock.set(now.UnixMicro(), sent)
	}
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.listeners = s.newListeners(queues)
	for _, l := range s.listeners {
		s.wg.Go(func() { l.run(ctx) })
	}
	s.wg.Go(func() { s.loop.run(ctx) })
	s.wg.Go(func() { s.showEntry(ctx, own) })
	heard := &cancellation{redis: s.cfg.Redis, cancel: s.loop.cancel, logger: s.cfg.Logger}
	s.wg.Go(func() { heard.run(ctx) })
	s.wg.Go(func() { checkHealth(ctx, &s.cfg) })
	for _, u := range newUpkeeps(&s.cfg, s.calls.Session, s.loop.hasFound) {
		s.wg.Go(func() { u.run(ctx) })
	}
	groups := newAggregation(&s.cfg, queues)
	s.wg.Go(func() { groups.run(ctx) })
	return nil
}

// startFailed returns the error of a start whose call to Redis has failed.
func startFailed(err error) error {
	return &redisreply.CallError{Err: fmt.Errorf("engine: start: %w", err)}
}

// newListeners returns what waits for notifications: one for all queues, and in a Cluster, where each has a slot of its own, one
// for each.
func (s *Server) newListeners(queues []string) []*listener {
	if !s.cfg.Cluster {
		return []*listener{{
			redis: s.cfg.Redis, queues: queues, tell: s.loop.notified, armed: s.loop.scopes[""].armed,
			idle: s.calls.Idle, wake: taskredis.WakeKey("", s.calls.Session), logger: s.cfg.Logger,
		}}
	}
	all := make([]*listener, len(queues))
	for i, queue := range queues {
		all[i] = &listener{
			redis: s.cfg.Redis, queues: []string{queue}, tell: s.loop.notified, armed: s.loop.scopes[queue].armed,
			wake: taskredis.WakeKey(queue, s.calls.Session), logger: s.cfg.Logger,
		}
	}
	return all
}

// Stop has the server take no more tasks. Those that run go on.
func (s *Server) Stop(ctx context.Context) error {
	return s.loop.do(ctx, func() { s.loop.stopping = true })
}

// Suspend has the server take no more tasks until Suspend(false).
func (s *Server) Suspend(ctx context.Context, is bool) error {
	return s.loop.do(ctx, func() { s.loop.suspended = is })
}

// SetRules has the server keep to other limits from now on. Those who wait and may start now are looked for. An error says that
// this did not succeed; they are then found within a minute.
func (s *Server) SetRules(ctx context.Context, r taskredis.Rules) error {
	s.calls.SetRules(r)
	queues := slices.Collect(maps.Keys(s.cfg.Queues))
	errs := make([]error, len(queues))
	var rescans sync.WaitGroup
	for i, queue := range queues { // at once, as the master of one may be away
		rescans.Go(func() {
			errs[i] = s.calls.Rescan(ctx, queue)
			_ = s.loop.do(ctx, func() { s.loop.queues.found([]string{queue}, time.Now()) }) // else it is found within a second
		})
	}
	rescans.Wait()
	return errors.Join(errs...)
}

// Shutdown stops taking tasks, and returns when those that run have ended and Redis knows. After ShutdownTimeout the
// contexts of the handlers end. If a handler goes on all the same, its task goes back to the head of its queue, as in asynq.
// A task with a lock does not: it keeps the lock, and Shutdown waits until its handler has returned. When ctx ends, Shutdown
// returns its error, and the server's leases expire. The error is also ErrNotReturned if no task runs any more.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.drain(ctx)
	running := err != nil && s.loop.atWork.Load() > 0 // the end of the loop ends their contexts
	s.stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), listenFor)
		defer cancel()
		for _, l := range s.listeners {
			l.stop(ctx)
		}
		s.wg.Wait() // for functions of the user, too, which may not return
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err == nil || running || ctx.Err() == nil {
		return err
	}
	return fmt.Errorf("%w: %w", ErrNotReturned, err)
}

// drain returns when the tasks that run have ended.
func (s *Server) drain(ctx context.Context) error {
	if err := s.loop.do(ctx, func() { s.loop.stopping, s.loop.closing = true, true }); err != nil {
		if errors.Is(err, ErrStopped) {
			return nil // by another call
		}
		return err
	}
	abort := time.NewTimer(s.cfg.ShutdownTimeout)
	defer abort.Stop()
	next := s.loop.abort
	for {
		select {
		case <-s.loop.drained:
			return nil
		case <-s.loop.done: // by another call
			return nil
		case <-abort.C:
			if err := s.loop.do(ctx, next); err != nil && !errors.Is(err, ErrStopped) {
				return err
			}
			next = s.loop.giveBack // time and again, as it changes nothing the second time
			abort.Reset(abortTime)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// abortTime is how long handlers have to return after a shutdown has ended their contexts.
const abortTime = 200 * time.Millisecond
