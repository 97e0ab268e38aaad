package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/cli"
	"github.com/sidingq/siding/internal/member"
	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/tasks/ledger"
	"github.com/sidingq/siding/tasks/oracle"
)

const (
	// demoQueue is the one queue of the demo.
	demoQueue = "default"
	// demoWork makes the longest row of tasks on one resource, about a hundred, take some
	// seconds. That is long enough to look at the dashboard.
	demoWork = 60 * time.Millisecond
	// stall is how long a demo may go on while no task ends, besides the work of one. asynq needs less to find a task
	// that a worker has dropped.
	stall = 2 * time.Minute
)

// A demo is a worker on an embedded Redis and a temporary ledger, with the tasks of
// the sample.
type demo struct {
	*app

	member *member.Member
	ledger *ledger.Ledger
	redis  redis.UniversalClient
	total  int           // tasks
	stall  time.Duration // how long no task may end, besides the work of one
}

// demo runs a demo until ctx ends, or with --once until its tasks are done.
func (a *app) demo(ctx context.Context, m *member.Member) (err error) {
	dir, err := os.MkdirTemp("", "siding-demo-")
	if err != nil {
		return err
	}
	a.temporary.Store(&dir)
	defer func() { err = errors.Join(err, a.removeTemporary()) }()
	l, err := ledger.Open(filepath.Join(dir, "ledger.db"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	rdb := queue.Redis(m.Redis)
	defer func() { _ = rdb.Close() }() // nothing is in flight by then
	m.Server.Asynq.Queues, m.Server.Shards, m.Server.Asynq.StrictPriority = map[string]int{demoQueue: 1}, nil, false
	m.Config.HTTP.Address = a.freeAddress(ctx, m.Config.HTTP.Address)
	d := &demo{app: a, member: m, ledger: l, redis: rdb, stall: stall}
	return d.run(ctx)
}

// run enqueues the tasks of the sample and runs them.
func (d *demo) run(ctx context.Context) (err error) {
	done := false
	jobs, err := sampleJobs(sample, demoQueue)
	if err != nil {
		return err
	}
	d.total = len(jobs)
	err = enqueueAll(ctx, d.redis, jobs)
	if err == nil {
		err = d.work(ctx, d.member, d.ledger, func(ctx context.Context, url string) error {
			err := d.perform(ctx, url)
			if done = err == nil || ctx.Err() == nil; !done {
				err = nil // a consequence of the end
			}
			return err
		})
	} else if ctx.Err() != nil {
		err = nil
	}
	if d.flags.once && !done && ctx.Err() != nil {
		err = errors.Join(fmt.Errorf("demo: interrupted: %w", context.Cause(ctx)), err)
	}
	return err
}

// perform shows the progress of the tasks and then the result. Without --once it goes on
// until ctx ends.
func (d *demo) perform(ctx context.Context, url string) error {
	d.say("demo: %d tasks on %d workers; dashboard: %s\n", d.total, d.member.Server.Asynq.Concurrency, url)
	r, err := d.watch(ctx)
	if err != nil {
		return err
	}
	if r.differences, err = differences(ctx, d.ledger, sample); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	r.LedgerOK = r.differences == ""
	if err := d.print(r); err != nil {
		return err
	}
	if d.flags.once {
		return r.err()
	}
	if err := r.err(); err != nil {
		d.say("demo: %v\n", err)
	}
	d.say("demo: still serving, until Ctrl-C: dashboard %s, redis %s\n", url, d.member.Redis.Addrs[0])
	<-ctx.Done()
	return nil
}

// freeAddress returns the address, or that of a free port if another program listens at the
// address. A demo should not fail for that.
func (a *app) freeAddress(ctx context.Context, address string) string {
	if address == "" {
		return ""
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err == nil {
		_ = listener.Close() // only tried
	}
	host, _, splitErr := net.SplitHostPort(address)
	if !errors.Is(err, syscall.EADDRINUSE) || splitErr != nil {
		return address
	}
	a.say("demo: %s is taken, using a free port\n", address)
	return net.JoinHostPort(host, "0")
}

// enqueueAll enqueues the jobs. It is an error if one is refused.
func enqueueAll(ctx context.Context, rdb redis.UniversalClient, jobs []queue.Job) error {
	client, err := queue.NewClient(rdb, queue.ClientConfig{})
	if err != nil {
		return err
	}
	results, err := client.EnqueueBatch(ctx, jobs)
	for _, result := range results {
		err = errors.Join(err, result.Err)
	}
	return err
}

// watch shows the progress of the tasks until all are done. If they stall, that is an error with --once; else somebody who
// tries the dashboard may have paused the queue, or deleted a task.
func (d *demo) watch(ctx context.Context) (result, error) {
	began, total, limit := time.Now(), d.total, d.stall+d.flags.work
	inspector := asynq.NewInspectorFromRedisClient(d.redis)
	line, said := cli.NewLine(d.stderr), began
	defer line.Wipe()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	stalled := false
	for done, since := 0, began; ; {
		info, err := inspector.GetQueueInfo(demoQueue)
		if err != nil {
			return result{}, fmt.Errorf("demo: %w", err)
		}
		text := fmt.Sprintf("demo: %d of %d tasks done, %d waiting, %d running", info.Completed+info.Archived, total, info.Retry, info.Active)
		line.Show("%s", text)
		if line == nil && !stalled && time.Since(said) >= 2*time.Second {
			said = time.Now()
			d.say("%s\n", text)
		}
		if now := info.Completed + info.Archived; now > done {
			done, since, stalled = now, time.Now(), false
		}
		if done >= total {
			s := d.member.Stats()
			return result{
				Tasks: total, Succeeded: info.Completed, Archived: info.Archived, Contended: s.Contended, Parked: s.Parked,
				elapsed: time.Since(began),
			}, nil
		}
		if time.Since(since) > limit && !stalled {
			stalled = true
			err := fmt.Errorf("demo: no task has ended for %v: %d of %d are done, %d wait, %d run", limit, done, total, info.Retry, info.Active)
			if d.flags.once {
				return result{}, err
			}
			line.Wipe()
			d.say("%v; still serving, until Ctrl-C\n", err)
		}
		select {
		case <-ctx.Done():
			return result{}, context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

// differences has the oracle recompute the ledger from the orders in text, and returns where it
// differs.
func differences(ctx context.Context, l *ledger.Ledger, text string) (string, error) {
	input, err := sampleInput(text)
	if err != nil {
		return "", err
	}
	found, err := oracle.Check(ctx, l.DB(), input)
	if err != nil || found.OK() {
		return "", err
	}
	return found.String(), nil
}
