package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/engine"
	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue/asynqhandler"
)

// The tests of this package can run their servers on package engine, which is to replace asynq.Server and the hook on its
// connection, and does not have all of it yet: go test ./queue -args -loop.

// A loopServer is a server on package engine.
type loopServer struct{ *engine.Server }

// OnLoop has new servers run on package engine.
func OnLoop() { startOther = startLoop }

func startLoop(ctx context.Context, s *Server, handler asynq.Handler) (otherServer, error) {
	g := s.guard
	run, err := asynqhandler.New(s.locks, handler)
	if err != nil {
		return nil, err
	}
	c, l := s.cfg.Asynq, g.locks.Config()
	var onError func(context.Context, *engine.Task, error)
	if c.ErrorHandler != nil {
		if onError, err = asynqhandler.NewErrorHandler(c.ErrorHandler); err != nil {
			return nil, err
		}
	}
	cfg := engine.Config{
		Redis: s.locks, Queues: shardQueues(c.Queues, s.cfg.Shards), Strict: c.StrictPriority, Concurrency: c.Concurrency,
		Cluster: !oneStep(g.rdb),
		Prefix:  l.Prefix, TTL: l.TTL, RenewEvery: l.RenewEvery, SafetyMargin: l.SafetyMargin, FenceTTL: l.FenceTTL(),
		Resource: func(m *taskredis.Message) (string, error) {
			resource, err := g.resourceOf(asynq.NewTaskWithHeaders(m.Type, m.Payload, m.Headers))
			if err == nil && resource != "" {
				_, err = g.policyOf(asynq.NewTaskWithHeaders(m.Type, m.Payload, m.Headers))
			}
			return resource, err
		},
		Handler:     g.onLoop(run),
		BaseContext: c.BaseContext, IsFailure: c.IsFailure, RetryDelay: c.RetryDelayFunc,
		OnError: func(ctx context.Context, t *engine.Task, err error) {
			task := asynq.NewTaskWithHeaders(t.Type, t.Payload, t.Headers)
			s.logFailure(ctx, task, err)
			if onError != nil {
				onError(ctx, t, err)
			}
		},
		ShutdownTimeout: c.ShutdownTimeout, Overrun: g.cfg.Overrun,
		DelayedTaskCheckInterval: c.DelayedTaskCheckInterval, JanitorInterval: c.JanitorInterval, JanitorBatchSize: c.JanitorBatchSize,
		HealthCheck: c.HealthCheckFunc, HealthCheckInterval: c.HealthCheckInterval,
		GroupAggregator: c.GroupAggregator, GroupGracePeriod: c.GroupGracePeriod, GroupMaxDelay: c.GroupMaxDelay, GroupMaxSize: c.GroupMaxSize,
		Crashes: max(g.cfg.Recovery.Crashes, 0), Losses: max(g.cfg.Recovery.Losses, 0),
		Settled: g.settled, Parked: g.parkedOnLoop, Recovered: func(n taskredis.Name) {
			g.cfg.Observe(Event{Kind: EventRecovered, TaskID: n.ID, Queue: n.Queue, Resource: strings.TrimPrefix(n.Lock, l.Prefix)})
		},
		Logger: g.cfg.Logger,
	}
	if cfg.RetryDelay == nil {
		cfg.RetryDelay = asynq.DefaultRetryDelayFunc
	}
	loop := &loopServer{engine.New(cfg)}
	_ = g.loadLimits(ctx)
	if err := loop.Start(ctx, rulesOn(g)); err != nil {
		return nil, fmt.Errorf("queue: start: %w", err)
	}
	g.work.Go(func() {
		table := g.limits.Load()
		for sleep.For(g.background, limitsEvery) == nil {
			call, cancel := context.WithTimeout(g.background, time.Second)
			g.limitsRead(g.background, g.loadLimits(call))
			cancel()
			if now := g.limits.Load(); now != table {
				table = now
				loop.SetRules(rulesOn(g))
			}
		}
	})
	return loop, nil
}

func rulesOn(g *Guard) taskredis.Rules {
	limits, overrides := g.limits.Load().Texts()
	return taskredis.Rules{Limits: limits, Overrides: overrides}
}

// onLoop calls the handler of a task, and says what happens.
func (g *Guard) onLoop(next engine.Handler) engine.Handler {
	return func(ctx context.Context, t *engine.Task) (err error) {
		info := Info{ID: t.ID, Queue: t.Queue, Kind: t.Type, Resource: t.Resource, Retried: t.Retried, Retries: t.Retry}
		ctx = withInfo(ctx, info)
		start := time.Now()
		ev := eventOf(t, EventStarted)
		if t.Resource != "" {
			ev.Kind, ev.Fence = EventAcquired, t.Taken.Fence
			if t.Taken.Parked > 0 {
				ev.Waited, ev.Via = max(time.Duration(t.Taken.Fence-t.Taken.Ticket)*time.Microsecond, 1), ViaHandOff
			}
		}
		g.cfg.Observe(ev)
		if t.Resource == "" {
			err = errNotReturned
			defer func() {
				ev := eventOf(t, EventFinished)
				ev.Held, ev.Err = time.Since(start), err
				g.cfg.Observe(ev)
			}()
		}
		err = next(ctx, t)
		if t.Resource == "" {
			g.noteUnguarded(t.Type)
		}
		return g.classify(err)
	}
}

// classify returns the error of a handler as package engine understands it.
func (g *Guard) classify(err error) error {
	if missing, ok := errors.AsType[*unavailableError](err); ok {
		g.shut(missing.error) // the loop is not held, so the task comes again and again
		return &engine.AgainError{Err: err, After: time.Second}
	}
	if other, ok := errors.AsType[*otherResourceError](err); ok {
		return &engine.OtherResourceError{Resource: other.resource}
	}
	if errors.Is(err, lock.ErrBusy) {
		return &engine.AgainError{Err: err, After: time.Second}
	}
	return err
}

// settled tells the observer of a guarded task that has ended.
func (g *Guard) settled(t *engine.Task, k taskredis.Kind, err error) {
	if t.Resource == "" {
		return
	}
	ev := eventOf(t, EventReleased)
	if k == taskredis.Again && (errors.Is(err, store.ErrLost) || errors.Is(err, store.ErrStale)) {
		ev.Kind = EventLost
	}
	ev.Fence, ev.Err = t.Taken.Fence, err
	g.cfg.Observe(ev)
}

func (g *Guard) parkedOnLoop(parked []taskredis.ParkedTask) {
	for _, p := range parked {
		g.cfg.Observe(Event{
			Kind: EventParked, TaskID: p.ID, Queue: p.Queue, Resource: strings.TrimPrefix(p.Lock, g.locks.Config().Prefix),
			Parked: p.Times, Holder: holderOf(p.Holder), Err: lock.ErrBusy,
		})
	}
}

func holderOf(token string) string {
	if rest, ok := strings.CutPrefix(token, "siding:"); ok {
		_, holder, _ := strings.Cut(rest, ":")
		return holder
	}
	return store.ForeignHolder
}

func eventOf(t *engine.Task, kind EventKind) Event {
	return Event{Kind: kind, TaskID: t.ID, TaskKind: t.Type, Queue: t.Queue, Resource: t.Resource}
}
