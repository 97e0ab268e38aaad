package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/config"
	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/tasks/oracle"
)

const (
	// demoQueue is the one queue of the demo.
	demoQueue = "default"
	// demoWork makes the longest row of tasks on one resource, about a
	// hundred, take some seconds: long enough to look at the dashboard.
	demoWork = 60 * time.Millisecond
	// stall is how long a demo may go on without a task being done: longer than
	// asynq needs to find a task that was dropped.
	stall = 2 * time.Minute
)

// demo runs a member on an embedded Redis and a temporary ledger, with the tasks
// of the sample, until ctx ends; with --once until they are done.
func (a *app) demo(ctx context.Context, cfg config.Config) (err error) {
	dir, err := os.MkdirTemp("", "siding-demo-")
	if err != nil {
		return fault{err}
	}
	a.temporary.Store(&dir)
	defer func() { err = errors.Join(err, a.removeTemporary()) }()
	own, err := a.embed(&cfg)
	if err != nil {
		return fault{err}
	}
	defer own.Close()
	cfg.Ledger.DSN = config.Secret(filepath.Join(dir, "ledger.db"))
	cfg.Queues, cfg.Shards, cfg.StrictPriority = map[string]int{demoQueue: 1}, nil, false
	if !slices.ContainsFunc(a.flags.settings, func(o config.Override) bool { return o.Flag == "log-level" }) {
		cfg.Log.Level = max(cfg.Log.Level, slog.LevelWarn) // the progress says enough
	}

	m, err := open(ctx, cfg, a.logger(cfg.Log), cmp.Or(a.flags.work, demoWork))
	if err != nil {
		return fault{err}
	}
	err = a.perform(ctx, m)
	if err != nil && ctx.Err() != nil {
		// What failed then is a consequence. With --once it is a failure that
		// not all has been done; otherwise ending is what was asked for.
		err = nil
		if a.flags.once {
			err = fmt.Errorf("demo: interrupted: %w", context.Cause(ctx))
		}
	}
	if err = errors.Join(err, m.drain(ctx)); err != nil {
		return fault{err}
	}
	return nil
}

// perform enqueues the tasks, runs them, tells what came of it, and goes on
// serving unless it is to end.
func (a *app) perform(ctx context.Context, m *member) error {
	listener, err := a.listenAnyway(ctx, m.cfg.HTTP.Address)
	if err != nil {
		return err
	}
	m.serveHTTP(listener)
	rdb := redis.NewClient(&redis.Options{Addr: m.cfg.Redis.Addrs[0], ContextTimeoutEnabled: true})
	defer func() { _ = rdb.Close() }() // nothing is in flight by then
	total, err := enqueueSample(ctx, rdb)
	if err != nil {
		return err
	}
	a.say("demo: %d tasks on %d workers; dashboard: %s\n", total, m.cfg.Concurrency, m.url())
	r, err := a.watch(ctx, m, asynq.NewInspectorFromRedisClient(rdb), total)
	if err != nil {
		return err
	}
	if err := checkLedger(ctx, m, &r); err != nil {
		return err
	}
	if err := a.print(r); err != nil {
		return err
	}
	if a.flags.once {
		return r.err()
	}
	if err := r.err(); err != nil {
		a.say("demo: %v\n", err)
	}
	a.say("demo: still serving, until Ctrl-C: dashboard %s, redis %s\n", m.url(), m.cfg.Redis.Addrs[0])
	select {
	case <-ctx.Done():
		return nil
	case err := <-m.broken:
		return err
	}
}

// listenAnyway binds the address, or a free port where that is taken: a demo
// should not fail for what else runs on the machine.
func (a *app) listenAnyway(ctx context.Context, address string) (net.Listener, error) {
	listener, err := listen(ctx, address)
	if !errors.Is(err, syscall.EADDRINUSE) {
		return listener, err
	}
	host, _, splitErr := net.SplitHostPort(address)
	if splitErr != nil {
		return nil, err
	}
	listener, err = listen(ctx, net.JoinHostPort(host, "0"))
	if err == nil {
		a.say("demo: %s is taken, using %s\n", address, listener.Addr())
	}
	return listener, err
}

// enqueueSample enqueues the tasks of the sample and returns how many they are.
func enqueueSample(ctx context.Context, rdb *redis.Client) (int, error) {
	jobs, err := sampleJobs(demoQueue)
	if err != nil {
		return 0, err
	}
	client, err := queue.NewClient(rdb, queue.ClientConfig{})
	if err != nil {
		return 0, err
	}
	results, err := client.EnqueueBatch(ctx, jobs)
	for _, result := range results {
		err = errors.Join(err, result.Err)
	}
	return len(jobs), err
}

// watch starts the member and shows how the tasks get on until all are done.
func (a *app) watch(ctx context.Context, m *member, inspector *asynq.Inspector, total int) (result, error) {
	began := time.Now()
	if err := m.takeTasks(ctx); err != nil {
		return result{}, err
	}
	shown := newProgress(a.stderr, total)
	defer shown.clear()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for done, since := 0, began; ; {
		info, err := inspector.GetQueueInfo(demoQueue)
		if err != nil {
			return result{}, fmt.Errorf("demo: %w", err)
		}
		shown.show(info.Completed+info.Archived, info.Retry, info.Active)
		if now := info.Completed + info.Archived; now > done {
			done, since = now, time.Now()
		}
		if done >= total {
			s := m.stats.Summary()
			return result{
				Tasks: total, Succeeded: info.Completed, Archived: info.Archived, Contended: s.Contended, Refused: s.Refused,
				P50: s.HandOffP50.Microseconds(), P99: s.HandOffP99.Microseconds(), elapsed: time.Since(began),
			}, nil
		}
		if time.Since(since) > stall {
			return result{}, fmt.Errorf("demo: no task has ended for %v: %d of %d are done, %d wait, %d run", stall, done, total, info.Retry, info.Active)
		}
		select {
		case <-ctx.Done():
			return result{}, context.Cause(ctx)
		case err := <-m.broken:
			return result{}, err
		case <-ticker.C:
		}
	}
}

// checkLedger has the oracle recompute the ledger from the orders.
func checkLedger(ctx context.Context, m *member, r *result) error {
	input, err := sampleInput()
	if err != nil {
		return err
	}
	found, err := oracle.Check(ctx, m.ledger.DB(), input)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	r.LedgerOK = found.OK()
	if !r.LedgerOK {
		r.differences = found.String()
	}
	return nil
}
