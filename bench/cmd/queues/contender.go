package main

import (
	"context"
	"time"

	"github.com/sidingq/siding/bench/internal/trace"
	"github.com/sidingq/siding/bench/internal/workload"
)

// A contender is one queue in one configuration.
type contender struct {
	name string
	// modules are where its code comes from, and config how it is set up: for readers.
	modules []string
	config  string
	// unsafe contenders do not exclude two tasks with one key: what the others
	// could reach at most.
	unsafe bool
	// limits says that a key may have several holders at once, and rates that it may have a rate.
	limits, rates bool
	// pairs says that a task may have two keys.
	pairs bool
	// needs is what has to be there besides redis-server.
	needs need
	// run does what the course asks for, on servers that nobody has used before.
	run func(context.Context, course) (outcome, error)
}

func (c contender) called() string { return c.name }

// can reports whether the contender knows what the plan asks for.
func (c contender) can(p workload.Plan) bool {
	return (!p.Pairs() || c.pairs) && (p.Holders < 2 || p.PerSecond > 0 || c.limits) && (p.PerSecond == 0 || c.rates)
}

// A need is a program that may be missing.
type need int

const (
	needsNothing need = iota
	needsPostgres
	needsNode
)

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
	all = append(all, riverContenders()...)
	return append(all, nodeContenders()...)
}
