package main

import (
	"context"
	"time"
)

// A contender is one way to keep tasks of one key apart.
type contender struct {
	name string
	// modules are where its code comes from, and config how it is set up: for readers.
	modules []string
	config  string
	promise string // what its own documentation says, in few words
	needs   need
	open    func(context.Context, setting) (system, error) // nil for one that runs in Node
	// judged says that the program fails if the contender breaks its promise.
	judged bool
}

func (c contender) called() string { return c.name }

// A need is a program that may be missing.
type need int

const (
	needsNothing need = iota
	needsPostgres
	needsNode
)

// ttl is after how long each contender may take a silent holder for dead, if it can be told so.
const ttl = 5 * time.Second

// contenders returns all there are, in the order of the table.
func contenders() []contender {
	const (
		asynqModule, locks = "github.com/hibiken/asynq", "github.com/bsm/redislock"

		atLeastOnce = "a task runs at least once, again after a crash of its worker; no order. The lock excludes others until its TTL"
		shared      = "lock TTL 5 s; IsFailure is false for a busy key"
	)
	locked := []string{asynqModule, locks}
	return []contender{
		{
			name: "siding", modules: []string{"github.com/sidingq/siding"}, config: "queue.Server with defaults, but lock TTL 5 s",
			promise: "one at a time while Redis keeps its data, and a fence against what was paused; nothing lost; in order; a crash uses no retry, frees the key after one TTL, and the task runs again within 10 s more",
			open:    openSiding, judged: true,
		},
		{
			name: "asynq-wait", modules: locked, config: shared + "; the worker waits for the lock, LinearBackoff(100 ms)",
			promise: atLeastOnce,
			open:    openAsynq(asynqRecipe{patience: 100 * time.Millisecond, delay: time.Second}),
		},
		{
			name: "asynq-retry", modules: locked, config: shared + ", which sends the task back for 1 s; DelayedTaskCheckInterval 1 s",
			promise: atLeastOnce,
			open:    openAsynq(asynqRecipe{delay: time.Second, timers: time.Second}),
		},
		{
			name: "asynq-spin", modules: locked, config: shared + ", which sends the task back for 20 ms (asynq keeps whole seconds: none); both check intervals 20 ms",
			promise: atLeastOnce,
			open:    openAsynq(asynqRecipe{delay: 20 * time.Millisecond, timers: 20 * time.Millisecond}),
		},
		{
			name: "asynq-unique", modules: []string{asynqModule}, config: "asynq.Unique(5 s) on a payload that is the key; who enqueues tries every 20 ms",
			promise: "no equal task is enqueued while one is there, until the TTL of its uniqueness; a task runs at least once, again after a crash of its worker",
			open:    openAsynq(asynqRecipe{unique: true}),
		},
		{
			name: "river", modules: []string{"github.com/riverqueue/river"}, needs: needsPostgres,
			config:  "PostgreSQL without fsync; pg_try_advisory_lock, JobSnooze(1 s) for a busy key; JobTimeout and RescueStuckJobsAfter 5 s",
			promise: "a job that is inserted runs at least once, and stuck ones are rescued; no job of one key at a time without Pro. The lock holds until its connection ends",
			open:    openRiver,
		},
		{
			name: "bullmq+lock", modules: []string{"bullmq"}, needs: needsNode,
			config:  "SET NX with TTL 5 s, moveToDelayed(100 ms) for a busy key; lockDuration and stalledInterval 5 s",
			promise: "exactly once is the aim, at least once in the worst case; stalled jobs run again; no groups without Pro. The lock excludes others until its TTL",
		},
		{
			name: "groupmq", modules: []string{"groupmq"}, needs: needsNode,
			config:  "a group per key; jobTimeoutMs, cleanupIntervalMs and stalledInterval 5 s, maxStalledCount 25",
			promise: "jobs of one group never run in parallel, and in order; stalled jobs are detected and run again",
		},
	}
}
