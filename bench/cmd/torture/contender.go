package main

import (
	"context"
	"time"

	"github.com/sidingq/siding/bench/internal/contest"
	"github.com/sidingq/siding/bench/internal/system"
)

// A contender is one way to keep tasks of one key apart.
type contender struct {
	contest.Entry

	open func(context.Context, system.Config) (system.System, error) // nil for one that runs in Node
	// judged says that the program fails if the contender breaks its promise.
	judged bool
}

// ttl is after how long each contender may take a silent holder for dead, if it can be told so.
const ttl = 5 * time.Second

// contenders returns all there are, in the order of the table.
func contenders() []contender {
	const (
		asynqModule, locks = "github.com/hibiken/asynq", "github.com/bsm/redislock"

		atLeastOnce = "a task runs at least once, again after a crash of its worker; no order. The lock excludes others until its TTL"
		shared      = "lock TTL 5 s; IsFailure is false for a busy key"
	)
	// A promise is what its own documentation says, in few words.
	of := func(name, config, promise string, open func(context.Context, system.Config) (system.System, error), needs contest.Need, modules ...string) contender {
		return contender{Entry: contest.Entry{Name: name, Modules: modules, About: config + "; promises: " + promise, Needs: needs}, open: open}
	}
	siding := of("siding", "queue.Server with defaults, but lock TTL 5 s",
		"one at a time while Redis keeps its data, and a fence against what was paused; nothing lost; in order; a crash uses no retry, frees the key after one TTL, and the task runs again within 10 s more",
		system.Siding{Task: system.Guarded}.Open, contest.Redis, "github.com/sidingq/siding")
	siding.judged = true
	return []contender{
		siding,
		of("asynq-wait", shared+"; the worker waits for the lock, LinearBackoff(100 ms)", atLeastOnce,
			system.Asynq{Named: true, Locks: true, Patience: 100 * time.Millisecond, Delay: time.Second}.Open, contest.Redis, asynqModule, locks),
		of("asynq-retry", shared+", which sends the task back for 1 s; DelayedTaskCheckInterval 1 s", atLeastOnce,
			system.Asynq{Named: true, Locks: true, Delay: time.Second, Poll: time.Second, Timers: time.Second}.Open, contest.Redis, asynqModule, locks),
		of("asynq-spin", shared+", which sends the task back for 20 ms (asynq keeps whole seconds: none); both check intervals 20 ms", atLeastOnce,
			system.Asynq{Named: true, Locks: true, Delay: 20 * time.Millisecond, Poll: 20 * time.Millisecond, Timers: 20 * time.Millisecond}.Open, contest.Redis, asynqModule, locks),
		of("asynq-unique", "asynq.Unique(5 s) on a payload that is the key; who enqueues tries every 20 ms",
			"no equal task is enqueued while one is there, until the TTL of its uniqueness; a task runs at least once, again after a crash of its worker",
			system.Asynq{Named: true, Unique: true}.Open, contest.Redis, asynqModule),
		of("river", "PostgreSQL without fsync; pg_try_advisory_lock, JobSnooze(1 s) for a busy key; JobTimeout and RescueStuckJobsAfter 5 s",
			"a job that is inserted runs at least once, and stuck ones are rescued; no job of one key at a time without Pro. The lock holds until its connection ends",
			system.River{Snooze: time.Second}.Open, contest.Postgres, "github.com/riverqueue/river"),
		of("bullmq+lock", "SET NX with TTL 5 s, moveToDelayed(100 ms) for a busy key; lockDuration and stalledInterval 5 s",
			"exactly once is the aim, at least once in the worst case; stalled jobs run again; no groups without Pro. The lock excludes others until its TTL",
			nil, contest.Node, "bullmq"),
		of("groupmq", "a group per key; jobTimeoutMs, cleanupIntervalMs and stalledInterval 5 s, maxStalledCount 25",
			"jobs of one group never run in parallel, and in order; stalled jobs are detected and run again",
			nil, contest.Node, "groupmq"),
	}
}
