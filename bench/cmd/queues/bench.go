package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/bench/internal/backend"
	"github.com/sidingq/siding/bench/internal/contest"
	"github.com/sidingq/siding/bench/internal/redisstat"
	"github.com/sidingq/siding/bench/internal/report"
	"github.com/sidingq/siding/bench/internal/system"
	"github.com/sidingq/siding/bench/internal/workload"
	"github.com/sidingq/siding/bench/node"
	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/testenv/pgtest"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

const (
	// utmost bounds what a run takes beyond its limit: enqueueing beforehand, and the end.
	utmost = 2 * time.Minute
	// emptyQuery is the case of what is measured before the contest.
	emptyQuery = "an empty query, before all"
	// connecting is how many round trips of a network workers get to connect, besides settle.
	connecting = 10
)

// A bench runs all contenders in all scenarios.
type bench struct {
	options

	log        io.Writer
	plans      map[string]workload.Plan // by scenario
	postgres   *pgtest.Server
	node       string // folder of its programs
	network    network
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
	b.contenders = contest.Meet(b.contenders, func(n contest.Need) (err error) {
		switch n {
		case contest.Postgres:
			b.postgres, err = pgtest.Run(ctx)
		case contest.Node:
			b.node, err = node.Install(ctx)
		case contest.Nothing:
		}
		return err
	}, log)
	if len(b.contenders) == 0 || len(b.scenarios) == 0 {
		b.close()
		return nil, errors.New("nothing is left to be measured")
	}
	if o.rtt > 0 {
		if err := b.lay(ctx); err != nil {
			b.close()
			return nil, err
		}
	}
	return b, nil
}

// lay makes the network, and tries it on servers like those that contenders will have.
func (b *bench) lay(ctx context.Context) error {
	server, err := redistest.Run(ctx)
	if err != nil {
		return err
	}
	defer server.Stop()
	servers := []backend.Server{backend.Redis(server.Addr)}
	if b.postgres != nil {
		url, err := b.postgres.CreateDatabase(ctx)
		if err != nil {
			return err
		}
		servers = append(servers, backend.Postgres(url))
	}
	b.network.rtt = b.rtt
	for _, server := range servers {
		t, err := b.network.try(ctx, server)
		if err != nil {
			return err
		}
		b.network.tried = append(b.network.tried, t)
		b.results.Add(t.server, report.Figure{Case: emptyQuery, Name: "without the network", Unit: "ms"}, report.MS(t.without))
		b.results.Add(t.server, report.Figure{Case: emptyQuery, Name: "with it", Unit: "ms"}, report.MS(t.with))
	}
	return nil
}

func (b *bench) close() {
	if b.postgres != nil {
		b.postgres.Stop()
	}
}

// writeSetting says what is measured, and on what.
func (b *bench) writeSetting(ctx context.Context, w io.Writer) error {
	server, err := redisstat.Version(ctx)
	programs := []string{server}
	if b.postgres != nil && err == nil {
		version, asked := b.postgres.Version(ctx)
		programs, err = append(programs, "PostgreSQL "+version), asked
	}
	if err != nil {
		return err
	}
	about := []string{fmt.Sprintf("%d rounds, scale %v, at most %v for each run", b.rounds, b.scale, b.limit), "network: " + b.network.String()}
	return contest.WriteSetting(ctx, w, programs, about, b.contenders, b.scenarios)
}

func (b *bench) say(format string, args ...any) { _, _ = fmt.Fprintf(b.log, format+"\n", args...) }

// run measures everything. Whatever did not come to its end in one round is not tried again.
func (b *bench) run(ctx context.Context) error {
	for round := range b.rounds {
		for _, s := range b.scenarios {
			for _, c := range contest.Turns(b.contenders, round) {
				which := [2]string{c.Name, s.Name}
				if b.unfinished[which] || b.plans[s.Name].Pairs() && !c.pairs {
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
	far, closeLink, err := b.network.link(ctx, backend.Redis(server.Addr))
	if err != nil {
		return nil, err
	}
	defer closeLink()
	m := &measurement{
		course: course{plan: plan, limit: b.limit, redis: far.Address(), node: b.node},
		unsafe: c.unsafe, inRedis: c.Needs != contest.Postgres, alone: plan.Alone(),
	}
	if m.roundTrip, err = b.network.roundTrip(ctx, far); err != nil {
		return nil, err
	}
	if c.Needs == contest.Postgres {
		url, err := b.postgres.CreateDatabase(ctx)
		if err != nil {
			return nil, err
		}
		if err := system.RiverTables(ctx, url); err != nil {
			return nil, err
		}
		far, closeLink, err := b.network.link(ctx, backend.Postgres(url))
		if err != nil {
			return nil, err
		}
		defer closeLink()
		m.database = far.Address()
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
	b.results.Add(report.Nobody, report.Figure{Case: "an empty script", Name: "round trip p50", Unit: "ms"}, report.MS(m.roundTrip))
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
