package queue

import (
	"fmt"

	"github.com/sidingq/siding/internal/engine"
	"github.com/sidingq/siding/internal/lockredis"
	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/queue/asynqhandler"
)

// engineConfig returns the configuration of the engine.
func (s *Server) engineConfig(run engine.Handler) (engine.Config, error) {
	c, l := s.cfg.Asynq, s.locks.Config()
	cfg := engine.Config{
		Redis: s.rdb, Queues: shardQueues(c.Queues, s.cfg.Shards), Strict: c.StrictPriority, Concurrency: c.Concurrency,
		Cluster: lockredis.IsCluster(s.rdb),
		Prefix:  l.Prefix, TTL: l.TTL, RenewEvery: l.RenewEvery, SafetyMargin: l.SafetyMargin, FenceTTL: l.FenceTTL(), Handoff: l.HandoffTimeout,
		Need: s.need, Handler: s.withLock(run), Refused: s.refused, Lost: s.lostMeanwhile, PolicyKinds: s.policyKinds(), OnFailure: s.onFailure,
		BaseContext: c.BaseContext, IsFailure: c.IsFailure, RetryDelay: c.RetryDelayFunc, Failed: s.logFailure,
		ShutdownTimeout: c.ShutdownTimeout, Overrun: s.cfg.Overrun,
		DelayedTaskCheckInterval: c.DelayedTaskCheckInterval, JanitorInterval: c.JanitorInterval, JanitorBatchSize: c.JanitorBatchSize,
		HealthCheck: c.HealthCheckFunc, HealthCheckInterval: c.HealthCheckInterval,
		GroupAggregator: c.GroupAggregator, GroupGracePeriod: c.GroupGracePeriod, GroupMaxDelay: c.GroupMaxDelay, GroupMaxSize: c.GroupMaxSize,
		Crashes: max(s.cfg.Recovery.Crashes, 0), NoRetriesToo: s.cfg.Recovery.NoRetriesToo, Losses: max(s.cfg.Recovery.Losses, 0),
		Settled: s.settled, Parked: s.parked, Recovered: s.recovered,
		Versions: versions(), Terms: s.terms(), AllowOtherLocks: s.cfg.AllowOtherLocks, Logger: s.cfg.Logger,
	}
	if s.cfg.Store != nil {
		cfg.Prefix = taskredis.WaitPrefix + l.Prefix
	}
	if c.ErrorHandler != nil {
		var err error
		if cfg.OnError, err = asynqhandler.NewErrorHandler(c.ErrorHandler); err != nil {
			return cfg, fmt.Errorf("queue: start: %w", err)
		}
	}
	return cfg, nil
}
