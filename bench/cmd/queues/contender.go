package main

import (
	"context"
	"fmt"
	"time"

	"github.com/sidingq/siding/bench/internal/contest"
	"github.com/sidingq/siding/bench/internal/system"
	"github.com/sidingq/siding/bench/internal/trace"
	"github.com/sidingq/siding/bench/internal/workload"
	"github.com/sidingq/siding/bench/node"
	"github.com/sidingq/siding/internal/metrics"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// A contender is one queue in one configuration.
type contender struct {
	contest.Contender

	// unsafe contenders do not exclude two tasks with one key: what the others
	// could reach at most.
	unsafe bool
	// limits says that a key may have several holders at once, rates that it may have a rate, and pairs that a task may
	// have two keys.
	limits, rates, pairs bool
	// run does what the course asks for, on servers that nobody has used before.
	run func(context.Context, course) (outcome, error)
}

// can reports whether the contender knows what the plan asks for.
func (c contender) can(p workload.Plan) bool {
	return (!p.Pairs() || c.pairs) && (p.Holders < 2 || p.PerSecond > 0 || c.limits) && (p.PerSecond == 0 || c.rates)
}

// A course is one run of one contender.
type course struct {
	plan     workload.Plan
	limit    time.Duration // after it has begun, when it is cut off
	redis    string        // address of a Redis of its own
	database string        // URL of a PostgreSQL database of its own, if it needs one
	node     string        // folder of the Node programs, if it needs them
	// Call begin before the clock starts, and end when all tasks have run
	// or the limit has passed, before anything is stopped.
	begin, end func(context.Context) error
}

// An outcome is what a contender tells of its run.
type outcome struct {
	trace.Trace

	sent int64         // commands that it sent to Redis
	cpu  time.Duration // that its process spent
}

// contenders returns all there are, in the order of the tables.
func contenders() []contender {
	all := sidingContenders()
	all = append(all, asynqContenders()...)
	for _, snooze := range []time.Duration{time.Second, 100 * time.Millisecond} {
		all = append(all, riverContender(snooze))
	}
	for _, delay := range []time.Duration{time.Second, 100 * time.Millisecond, 10 * time.Millisecond} {
		all = append(all, bullmqContender(delay))
	}
	return append(all, contender{
		Contender: contest.Contender{
			Name: "groupmq", Modules: []string{"groupmq"}, Needs: contest.Node,
			Config: fmt.Sprintf("a group per key, no lock; for a limit so many groups per key, in turn; %d calls of add at once", many),
		},
		limits: true, run: inNode("groupmq", 0),
	})
}

func sidingContenders() []contender {
	of := func(name, config string, change func(*queue.ServerConfig), task func(workload.Task) queue.Task) contender {
		return contender{
			Contender: contest.Contender{Name: name, Modules: []string{"github.com/sidingq/siding"}, Config: config},
			limits:    true, rates: true, pairs: true, run: inProcess(system.Siding{Change: change, Task: task}.Open, 1),
		}
	}
	sharded := func(c *queue.ServerConfig) { c.Shards = map[string]int{"default": 128} }
	unguarded := of("siding-unguarded", "the same with defaults; tasks without a resource", nil, system.Unguarded)
	unguarded.unsafe, unguarded.limits, unguarded.rates, unguarded.pairs = true, false, false, false
	shards := of("siding-shards", "the same as siding; the queue is spread over 128 shards", sharded, system.Guarded)
	shards.pairs = false // a task has one shard
	nested := of("siding-nested", "the same; of two keys the handler takes the lock of the second", nil, system.Nested)
	nested.limits, nested.rates = false, false
	return []contender{
		of("siding", "queue.Server with defaults: lock TTL 15 s", nil, system.Guarded),
		of("siding-even", "the same as siding; a key with a rate has a second one, which spaces its starts evenly", evenly, system.Guarded),
		shards,
		of("siding-metrics", "the same as siding, with the metrics of a worker", withMetrics, system.Guarded),
		unguarded, nested,
	}
}

// evenly adds a rate of one start for each part of a second.
func evenly(c *queue.ServerConfig) {
	for pattern, limit := range c.Limits {
		for _, r := range limit.Rates {
			limit.Rates = append(limit.Rates, lock.Rate{Starts: 1, Period: r.Period / time.Duration(r.Starts)})
		}
		c.Limits[pattern] = limit
	}
}

// withMetrics adds what a worker observes.
func withMetrics(c *queue.ServerConfig) {
	m, observe := metrics.New(), c.Observe
	c.Observe = func(e queue.Event) {
		observe(e)
		m.Observe(e)
	}
}

// lanes is how many servers the contender asynq-lanes has.
const lanes = 4

func asynqContenders() []contender {
	const recipe = "lock TTL 30 s, IsFailure false and a fixed RetryDelayFunc for a task whose key is taken"
	of := func(name, config string, a system.Asynq) contender {
		modules := []string{"github.com/hibiken/asynq"}
		if a.Locks && !a.Counts {
			modules = append(modules, "github.com/bsm/redislock")
		}
		return contender{
			Contender: contest.Contender{Name: name, Modules: modules, Config: config},
			unsafe:    !a.Locks, limits: a.Counts, rates: a.Counts, pairs: !a.Counts, run: inProcess(a.Open, 1),
		}
	}
	return []contender{
		of("asynq", "no lock; TaskCheckInterval 10 ms as Siding's", system.Asynq{Poll: 10 * ms}),
		of("asynq-lanes", fmt.Sprintf("the same, %d servers in the process that share the concurrency", lanes), system.Asynq{Servers: lanes, Poll: 10 * ms}),
		of("asynq+redislock", "asynq with defaults; "+recipe+": 1 s", system.Asynq{Locks: true, Delay: time.Second}),
		of("asynq+redislock-100ms", "the same with TaskCheckInterval 50 ms, DelayedTaskCheckInterval 100 ms",
			system.Asynq{Locks: true, Delay: time.Second, Poll: 50 * ms, Timers: 100 * ms}),
		of("asynq+redislock-spin", "the same with 20 ms for both, delay 20 ms (asynq keeps whole seconds: none)",
			system.Asynq{Locks: true, Delay: 20 * ms, Poll: 20 * ms, Timers: 20 * ms}),
		of("sleep", "asynq, TaskCheckInterval 10 ms; the worker waits for the lock, LinearBackoff(100 ms)",
			system.Asynq{Locks: true, Delay: time.Second, Poll: 10 * ms, Patience: 100 * ms}),
		of("asynq+semaphore", "asynq with defaults; a semaphore in a sorted set by expiry, for a rate a count per second; else as asynq+redislock",
			system.Asynq{Locks: true, Counts: true, Delay: time.Second}),
		of("asynq+semaphore-spin", "the same set up as asynq+redislock-spin",
			system.Asynq{Locks: true, Counts: true, Delay: 20 * ms, Poll: 20 * ms, Timers: 20 * ms}),
	}
}

// many is how many tasks River and the contenders in Node enqueue with one call.
const many = 100

func riverContender(snooze time.Duration) contender {
	// As often as Siding looks, instead of once a second, and River's least, instead of 100 ms: with so few workers, it
	// bounds the rate.
	r := system.River{Snooze: snooze, Poll: 10 * time.Millisecond, Cooldown: time.Millisecond}
	return contender{
		Contender: contest.Contender{
			Name: fmt.Sprintf("river-%v", snooze), Modules: []string{"github.com/riverqueue/river"}, Needs: contest.Postgres,
			Config: fmt.Sprintf("PostgreSQL without fsync; pg_try_advisory_lock, JobSnooze(%v) if it is taken, or for a limit a queue with so many workers; FetchCooldown %v, FetchPollInterval %v, enqueues %d with a call",
				snooze, r.Cooldown, r.Poll, many),
		},
		limits: true, run: inProcess(r.Open, many),
	}
}

func bullmqContender(delay time.Duration) contender {
	return contender{
		Contender: contest.Contender{
			Name: fmt.Sprintf("bullmq-%v", delay), Modules: []string{"bullmq"}, Needs: contest.Node,
			Config: fmt.Sprintf("SET NX with TTL 30 s, moveToDelayed(%v) if it is taken; for a limit a worker with that concurrency, for a rate its limiter, both without a lock; enqueues %d with addBulk", delay, many),
		},
		limits: true, rates: true, run: inNode("bullmq", delay),
	}
}

func inNode(queue string, delay time.Duration) func(context.Context, course) (outcome, error) {
	return func(ctx context.Context, c course) (outcome, error) {
		o, err := node.Run(ctx, c.node, node.Course{
			Queue: queue, Redis: c.redis, Batch: many, Delay: delay, Plan: c.plan, Limit: c.limit, Begin: c.begin, End: c.end,
		})
		return outcome{Trace: o.Trace, sent: o.Sent, cpu: o.CPU}, err
	}
}
