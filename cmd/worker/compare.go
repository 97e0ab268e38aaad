package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/schollz/progressbar/v3"

	"github.com/sidingq/siding/internal/compare"
	"github.com/sidingq/siding/internal/infokey"
	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/member"
	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/tasks"
	"github.com/sidingq/siding/tasks/ledger"
)

// limitOf returns how long a way of a comparison may take.
func limitOf(ideal time.Duration) time.Duration { return max(5*ideal, 30*time.Second) }

// siding is the name of the way that is no contender.
const siding = "siding"

// A comparison runs the tasks of the demo in several ways, one after the other.
type comparison struct {
	*app

	member *member.Member
	redis  redis.UniversalClient // the embedded one, which is emptied before each way
	dir    string
	orders string // the text of an order file
	jobs   []queue.Job
	needs  []compare.Job // the same tasks
	table  table
}

// A starter starts a server that runs tasks on the ledger, and returns what stops it.
type starter func(context.Context, *ledger.Ledger, *compare.Record) (stop func() error, err error)

// compare runs a comparison until its end, or that of ctx.
func (a *app) compare(ctx context.Context, m *member.Member) (err error) {
	c := &comparison{app: a, member: m, orders: cmp.Or(a.orders, sample)}
	if err := c.plan(); err != nil {
		return err
	}
	if c.dir, err = os.MkdirTemp("", "siding-compare-"); err != nil {
		return err
	}
	a.temporary.Store(&c.dir)
	defer func() { err = errors.Join(err, a.removeTemporary()) }()
	options := *m.Redis
	options.PoolSize = 2*m.Server.Asynq.Concurrency + 10
	c.redis = queue.Redis(&options)
	defer func() { _ = c.redis.Close() }() // nothing is in flight by then
	m.Server.Asynq.Queues, m.Server.Shards, m.Server.Asynq.StrictPriority = map[string]int{demoQueue: 1}, nil, false
	if err := c.run(ctx); ctx.Err() != nil {
		return fmt.Errorf("compare: interrupted: %w", context.Cause(ctx))
	} else if err != nil {
		return fmt.Errorf("compare: %w", err)
	}
	if err := c.table.show(a); err != nil {
		return err
	}
	return c.table.err()
}

// plan reads the orders, and computes what is known before the first way.
func (c *comparison) plan() (err error) {
	if c.jobs, err = sampleJobs(c.orders, demoQueue); err != nil {
		return err
	}
	c.needs = needs(c.jobs, c.flags.work)
	workers := c.member.Server.Asynq.Concurrency
	ideal := compare.Least(c.needs, workers)
	starts, others := compare.Starts(c.needs, workers), compare.Firsts(c.needs)
	var waits []time.Duration
	for _, id := range others {
		waits = append(waits, starts[id])
	}
	limit := cmp.Or(c.limit, limitOf(ideal))
	c.table = table{
		Tasks: len(c.jobs), Others: len(others), Workers: workers, Work: micros(c.flags.work), Limit: micros(limit),
		Ideal: micros(ideal), IdealP50: micros(compare.Quantile(waits, 50)), IdealP99: micros(compare.Quantile(waits, 99)),
		Shared: compare.Shared(),
	}
	return nil
}

// needs returns what the jobs need, if each works for so long. A form that is submitted again needs
// no time.
func needs(jobs []queue.Job, work time.Duration) []compare.Job {
	needs := make([]compare.Job, len(jobs))
	submitted := make(map[[2]string]bool)
	for i, job := range jobs {
		needs[i] = compare.Job{ID: job.Options.TaskID, Work: work}
		if guarded, ok := job.Task.(queue.Guarded); ok {
			needs[i].Resource = guarded.Resource()
		}
		if p, ok := job.Task.(tasks.PlaceOrder); ok {
			form := [2]string{p.User, p.Submission}
			if submitted[form] {
				needs[i].Work = 0
			}
			submitted[form] = true
		}
	}
	return needs
}

// run runs all ways.
func (c *comparison) run(ctx context.Context) error {
	c.say("compare: %d tasks on %d workers, four ways; each has %v at most\n", c.table.Tasks, c.table.Workers, duration(c.table.Limit))
	for _, w := range compare.Ways() {
		if err := c.way(ctx, w.Name, w.Settings(), c.contender(w)); err != nil {
			return err
		}
	}
	settings := []string{
		"a task whose resource is busy is parked, and runs in its turn once the lock is free",
		fmt.Sprintf("TTL %v, DelayedTaskCheckInterval %v", c.member.Server.Lock.TTL, c.member.Server.Asynq.DelayedTaskCheckInterval),
	}
	return c.way(ctx, siding, settings, c.siding)
}

// way runs all tasks one way, on an empty Redis and an empty ledger.
func (c *comparison) way(ctx context.Context, name string, settings []string, start starter) (err error) {
	if err := c.redis.FlushAll(ctx).Err(); err != nil {
		return err
	}
	l, err := ledger.Open(ctx, filepath.Join(c.dir, name+".db"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	if err := enqueueAll(ctx, c.redis, c.jobs); err != nil {
		return err
	}
	record := compare.NewRecord()
	stop, err := start(ctx, l, record)
	if err != nil {
		return err
	}
	r, err := c.watch(ctx, name, record)
	if err = errors.Join(err, stop()); err != nil {
		return err
	}
	record.Close()
	r.Settings = settings
	if r.Finished {
		if r.differences, err = differences(ctx, l, c.orders); err != nil {
			return err
		}
		right := r.differences == ""
		r.LedgerOK = &right
	}
	c.table.Ways = append(c.table.Ways, r)
	return nil
}

// watch shows the progress of a way until all tasks are done, or its time is over.
func (c *comparison) watch(ctx context.Context, name string, record *compare.Record) (row, error) {
	inspector := asynq.NewInspectorFromRedisClient(c.redis)
	limit := duration(c.table.Limit)
	shown := newProgress(c.stderr, name, len(c.jobs), progressbar.OptionSetWidth(18), progressbar.OptionSetElapsedTime(false))
	defer shown.keep()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		info, err := inspector.GetQueueInfo(demoQueue)
		if err != nil {
			return row{}, err
		}
		done, elapsed, refusals := info.Completed+info.Archived, record.Elapsed(), record.Refusals()
		finished := done == len(c.jobs)
		if finished {
			elapsed = record.Took()
		}
		shown.show(done, fmt.Sprintf("%-10s %5.1f s %6d refusals", name, min(elapsed, limit).Seconds(), refusals))
		if finished || elapsed >= limit {
			waits := record.Waits(compare.Firsts(c.needs))
			return row{
				Way: name, Finished: finished, Succeeded: info.Completed, Archived: info.Archived, Charged: info.FailedTotal,
				Time: micros(min(elapsed, limit)), Refusals: refusals,
				P50: started(compare.Quantile(waits, 50)), P99: started(compare.Quantile(waits, 99)),
			}, nil
		}
		select {
		case <-ctx.Done():
			return row{}, context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

// contender returns what starts a server of the way.
func (c *comparison) contender(w compare.Way) starter {
	return func(ctx context.Context, l *ledger.Ledger, record *compare.Record) (func() error, error) {
		book := tasks.NewBook(l, c.flags.work)
		var fences atomic.Int64
		stop, err := w.Start(ctx, compare.Config{
			Redis: c.redis, Queue: demoQueue, Workers: c.table.Workers, Busy: record.Busy,
			Work: func(ctx context.Context, resource string, t *asynq.Task) error {
				id, _ := asynq.GetTaskID(ctx)
				return record.Run(id, func() error {
					task, err := tasks.Decode(t.Type(), t.Payload())
					if err != nil {
						return err
					}
					// The shop wants a fence, which a plain lock has not. All holders are in this
					// process, so a counter will do.
					fenced := lease.WithFence(ctx, resource, fences.Add(1))
					return book.Run(context.WithValue(fenced, infokey.Key{}, queue.Info{ID: id}), task)
				})
			},
		})
		if err != nil {
			return nil, err
		}
		return func() error { stop(); return nil }, nil
	}
}

// siding starts a worker as the demo has it.
func (c *comparison) siding(ctx context.Context, l *ledger.Ledger, record *compare.Record) (func() error, error) {
	cfg := c.member.Server
	cfg.Available = l.Writable
	cfg.Observe = func(e queue.Event) {
		if e.Kind == queue.EventParked {
			record.Busy()
		}
	}
	server, err := queue.NewServer(queue.RedisOpt(*c.member.Redis), cfg)
	if err != nil {
		return nil, err
	}
	tasks.Register(server, l, c.flags.work)
	server.Use(func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
			return record.Run(queue.InfoFrom(ctx).ID, func() error { return next.ProcessTask(ctx, t) })
		})
	})
	stop := func() error { return server.Shutdown(context.WithoutCancel(ctx)) }
	if err := server.Start(ctx); err != nil {
		return nil, errors.Join(err, stop())
	}
	return stop, nil
}
