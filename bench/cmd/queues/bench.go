package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/bench/internal/contest"
	"github.com/sidingq/siding/bench/internal/delay"
	"github.com/sidingq/siding/bench/internal/redisstat"
	"github.com/sidingq/siding/bench/internal/report"
	"github.com/sidingq/siding/bench/internal/workload"
	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

const (
	// utmost bounds what a run takes beyond its limit: enqueueing beforehand, and the end.
	utmost = 2 * time.Minute
	// connecting is how many round trips of a network workers get to connect, besides settle.
	connecting = 10
)

// A bench runs all contenders in all scenarios.
type bench struct {
	options

	log        io.Writer
	plans      map[string]workload.Plan // by scenario
	node       string                   // folder of its programs
	results    report.Results
	unfinished map[[2]string]bool // contender and scenario
}

// newBench plans the scenarios and starts what the contenders need, and drops those
// for which something is not there.
func newBench(ctx context.Context, o options, log io.Writer) (*bench, error) {
	b := &bench{options: o, log: log, plans: make(map[string]workload.Plan), unfinished: make(map[[2]string]bool)}
	b.results.RTT = o.rtt
	for _, s := range b.scenarios {
		b.plans[s.Name] = s.plan(b.scale)
	}
	var err error
	b.contenders, b.node, err = contest.Meet(ctx, b.contenders, log)
	return b, err
}

// writeSetting says what is measured, and on what.
func (b *bench) writeSetting(ctx context.Context, w io.Writer) error {
	server, err := redisstat.Version(ctx)
	if err != nil {
		return err
	}
	about := []string{
		fmt.Sprintf("%d rounds, scale %v, at most %v for each run", b.rounds, b.scale, b.limit),
		fmt.Sprintf("network: %v more for each round trip", b.rtt),
	}
	return contest.WriteSetting(ctx, w, []string{server}, about, b.contenders, b.scenarios)
}

func (b *bench) say(format string, args ...any) { _, _ = fmt.Fprintf(b.log, format+"\n", args...) }

// run measures everything. Whatever did not come to its end in one round is not tried again.
func (b *bench) run(ctx context.Context) error {
	for round := range b.rounds {
		for _, s := range b.scenarios {
			for _, c := range contest.Turns(b.contenders, round) {
				which := [2]string{c.Name, s.Name}
				if b.unfinished[which] || b.plans[s.Name].Pairs() && c.Needs == contest.Node { // which have one key per task
					continue
				}
				m, err := b.measure(ctx, c, b.plans[s.Name])
				if err != nil {
					return fmt.Errorf("%s, %s: %w", c.Name, s.Name, err)
				}
				b.unfinished[which] = !m.complete()
				b.add(c, s, m)
				b.say("round %d of %d: %s, %s: %d of %d tasks in %.1f s", round+1, b.rounds, s.Name, c.Name, m.Done(), len(m.plan.Tasks), m.took.Seconds())
			}
		}
	}
	return nil
}

// measure runs a contender once, on a Redis of its own, and checks what it did.
func (b *bench) measure(ctx context.Context, c contender, plan workload.Plan) (*measurement, error) {
	slack := time.Duration(len(plan.Tasks)) * 2 * b.rtt // as tasks may be enqueued one by one
	ctx, cancel := context.WithTimeoutCause(ctx, b.limit+utmost+slack, errors.New("the run does not come to its end"))
	defer cancel()
	server, err := redistest.Run(ctx)
	if err != nil {
		return nil, err
	}
	defer server.Stop()
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer func() { _ = client.Close() }()
	far, closeLink, err := delay.Between(ctx, server.Addr, b.rtt)
	if err != nil {
		return nil, err
	}
	defer closeLink()
	m := &measurement{course: course{plan: plan, limit: b.limit, redis: far, node: b.node}, unsafe: c.unsafe, alone: plan.Alone()}
	if m.roundTrip, err = redisstat.RoundTrip(ctx, far); err != nil {
		return nil, err
	}
	var start time.Time
	var before redisstat.Usage
	m.begin = func(ctx context.Context) (err error) {
		if err = sleep.For(ctx, connecting*b.rtt); err != nil {
			return err
		}
		before, err = redisstat.ReadUsage(ctx, client)
		start = time.Now()
		return err
	}
	m.end = func(ctx context.Context) error {
		m.took = time.Since(start)
		after, err := redisstat.ReadUsage(ctx, client)
		m.used = after.Since(before)
		return err
	}
	runtime.GC() // what the last one left
	if m.outcome, err = c.run(ctx, m.course); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		return nil, err
	}
	m.handOffs = m.HandOffs(plan.Tasks)
	if err := m.Check(plan, !c.unsafe); err != nil {
		return nil, err
	}
	return m, m.CheckDelay(b.rtt)
}

// add takes in the figures of a run.
func (b *bench) add(c contender, s scenario, m *measurement) {
	b.results.AddRoundTrip(m.roundTrip)
	for _, f := range s.figures {
		of := report.Figure{Case: s.Name, Name: f.name, Unit: f.unit}
		if f.whole && !m.complete() {
			b.results.Note(c.Name, of, fmt.Sprintf("unfinished: %d of %d", m.Done(), len(m.plan.Tasks)))
			continue
		}
		if value, ok := f.of(m); ok {
			b.results.Add(c.Name, of, value)
		}
	}
}
