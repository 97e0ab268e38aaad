package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sidingq/siding/bench/internal/redisstat"
	"github.com/sidingq/siding/bench/internal/report"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

const (
	// few is how many tasks wait in the case that others are compared with, at most
	// so many on each resource as there.
	few = 100
	// handOffs is the case of their times in the results.
	handOffs = "hand-offs"
)

// measure parks the tasks on so many resources, in a Redis of their own, and
// measures everything.
func measure(ctx context.Context, o options, resources int, own float64) (err error) {
	server, err := redistest.Run(ctx)
	if err != nil {
		return err
	}
	defer server.Stop()
	s, err := newTestbed(server.Addr, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close(ctx)) }()
	s.resources, s.own = resources, own
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"few tasks", s.few},
		{"locks", func(ctx context.Context) error { return s.hold(ctx, s.resources) }},
		{"tasks", s.park},
		{"hand-offs", s.many},
	} {
		s.say("%s: %s", s.name, step.what)
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return nil
}

// few times hand-offs while few tasks wait.
func (s *testbed) few(ctx context.Context) error {
	resources := max(1, few/(s.tasks/s.resources))
	for round := 0; len(s.tookFew) < s.handOffs; round++ {
		s.prefix = fmt.Sprintf("few:%d:", round)
		if err := s.hold(ctx, resources); err != nil {
			return err
		}
		if err := s.start(ctx); err != nil {
			return err
		}
		if err := s.enqueue(ctx, few, resources); err != nil {
			return err
		}
		if err := s.allParked(ctx, few); err != nil {
			return err
		}
		took, err := s.chains(ctx, few, resources)
		if err != nil {
			return err
		}
		s.tookFew = append(s.tookFew, took...)
		if err := errors.Join(s.stop(ctx), s.clear(ctx)); err != nil {
			return err
		}
	}
	s.prefix = "many:"
	return nil
}

// park enqueues the tasks, has a server park them, and weighs them.
func (s *testbed) park(ctx context.Context) error {
	before, err := redisstat.Memory(ctx, s.rdb)
	if err != nil {
		return err
	}
	cpu, start := s.used(ctx), time.Now()
	if err := s.enqueue(ctx, s.tasks, s.resources); err != nil {
		return err
	}
	s.add("enqueue", "enqueued", "per second", rate(s.tasks, start))
	s.addCPU(ctx, "enqueue", cpu, s.tasks)
	if err := s.start(ctx); err != nil {
		return err
	}
	cpu, start = s.used(ctx), time.Now()
	if err := s.allParked(ctx, s.tasks); err != nil {
		return err
	}
	s.add("park", "parked", "per second", rate(s.tasks, start))
	s.addCPU(ctx, "park", cpu, s.tasks)
	after, err := redisstat.Memory(ctx, s.rdb)
	if err != nil {
		return err
	}
	s.add("park", "memory beyond asynq's", "bytes", float64(after-before)/float64(s.tasks)-s.own)
	return nil
}

// many times hand-offs while all the tasks wait.
func (s *testbed) many(ctx context.Context) error {
	before := s.used(ctx)
	took, err := s.chains(ctx, s.tasks, s.resources)
	if err != nil {
		return err
	}
	s.results.AddPercentiles(s.name, handOffs, "few waiting", s.tookFew)
	s.results.AddPercentiles(s.name, handOffs, "all waiting", took)
	for _, p := range []float64{50, 99} {
		ratio := report.MS(report.Percentile(took, p)) / report.MS(report.Percentile(s.tookFew, p))
		s.add(handOffs, fmt.Sprintf("p%v", p), "times the others", ratio)
	}
	s.addCPU(ctx, handOffs, before, len(took))
	s.add(handOffs, "timed", "hand-offs", float64(len(took)))
	return s.stop(ctx)
}

// add adds a figure of the case.
func (s *testbed) add(what, name, unit string, value float64) {
	s.results.Add(s.name, report.Figure{Case: what, Name: name, Unit: unit}, value)
}

// used returns what Redis has done so far, and nothing when Redis does not tell. Figures computed from that are visibly wrong.
func (s *testbed) used(ctx context.Context) redisstat.Usage {
	u, _ := redisstat.ReadUsage(ctx, s.rdb)
	return u
}

// addCPU adds what Redis has spent since before for each of so many tasks.
func (s *testbed) addCPU(ctx context.Context, what string, before redisstat.Usage, tasks int) {
	s.add(what, "CPU of Redis", "µs for each", float64(s.used(ctx).Since(before).CPU.Microseconds())/float64(tasks))
}

func rate(n int, since time.Time) float64 { return float64(n) / time.Since(since).Seconds() }
