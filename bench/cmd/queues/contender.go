package main

import (
	"context"
	"fmt"
	"time"

	"github.com/sidingq/siding/bench/internal/contest"
	"github.com/sidingq/siding/bench/internal/system"
	"github.com/sidingq/siding/bench/internal/trace"
	"github.com/sidingq/siding/bench/internal/workload"
	"github.com/sidingq/siding/queue"
)

// A contender is one queue in one configuration.
type contender struct {
	contest.Entry

	// unsafe contenders do not exclude two tasks with one key: what the others
	// could reach at most.
	unsafe bool
	// run does what the course asks for, on servers that nobody has used before.
	run func(context.Context, course) (outcome, error)
}

// A course is one run of one contender.
type course struct {
	plan  workload.Plan
	limit time.Duration // after it has begun, when it is cut off
	redis string        // address of a Redis of its own
	node  string        // folder of the Node programs, if it needs them
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
	of := func(name, queue, config string) contender {
		return contender{
			Entry: contest.Entry{Name: name, Modules: []string{queue}, About: fmt.Sprintf(config, many), Needs: contest.Node},
			run:   inNode(queue),
		}
	}
	return append(all,
		of("bullmq-10ms", "bullmq", "SET NX with TTL 30 s, moveToDelayed(10ms) if it is taken; enqueues %d with addBulk"),
		of("groupmq", "groupmq", "a group per key, no lock; %d calls of add at once"))
}

func sidingContenders() []contender {
	of := func(name, config string, task func(workload.Task) queue.Task) contender {
		return contender{
			Entry: contest.Entry{Name: name, Modules: []string{"github.com/sidingq/siding"}, About: config},
			run:   inProcess(system.Siding{Task: task}.Open),
		}
	}
	unguarded := of("siding-unguarded", "the same with defaults; tasks without a resource", system.Unguarded)
	unguarded.unsafe = true
	return []contender{
		of("siding", "queue.Server with defaults: lock TTL 15 s", system.Guarded),
		unguarded,
		of("siding-nested", "the same; of two keys the handler takes the lock of the second", system.Nested),
	}
}

// lanes is how many servers the contender asynq-lanes has.
const lanes = 4

func asynqContenders() []contender {
	const recipe = "lock TTL 30 s, IsFailure false and a fixed RetryDelayFunc for a task whose key is taken"
	of := func(name, config string, a system.Asynq) contender {
		modules := []string{"github.com/hibiken/asynq"}
		if a.Locks {
			modules = append(modules, "github.com/bsm/redislock")
		}
		return contender{
			Entry:  contest.Entry{Name: name, Modules: modules, About: config},
			unsafe: !a.Locks, run: inProcess(a.Open),
		}
	}
	return []contender{
		of("asynq", "no lock; TaskCheckInterval 10 ms as Siding's", system.Asynq{Poll: 10 * ms}),
		of("asynq-lanes", fmt.Sprintf("the same, %d servers in the process that share the concurrency", lanes), system.Asynq{Servers: lanes, Poll: 10 * ms}),
		of("asynq+redislock", "asynq with defaults; "+recipe+": 1 s", system.Asynq{Locks: true, Delay: time.Second}),
		of("asynq+redislock-spin", "the same with TaskCheckInterval and DelayedTaskCheckInterval 20 ms, delay 20 ms (asynq keeps whole seconds: none)",
			system.Asynq{Locks: true, Delay: 20 * ms, Poll: 20 * ms, Timers: 20 * ms}),
		of("sleep", "asynq, TaskCheckInterval 10 ms; the worker waits for the lock, LinearBackoff(100 ms)",
			system.Asynq{Locks: true, Delay: time.Second, Poll: 10 * ms, Patience: 100 * ms}),
	}
}
