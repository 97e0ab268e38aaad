package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/sidingq/siding/bench/internal/judge"
)

// A bench runs all scenarios, each with all contenders side by side.
type bench struct {
	options

	log     io.Writer
	node    string // folder of its programs
	results []result
}

// A result is what one contender came to in one scenario.
type result struct {
	contender contender
	scenario  scenario
	verdict   judge.Verdict
	err       error // without a verdict
}

// torture takes all contenders through a scenario at the same time.
func (b *bench) torture(ctx context.Context, s scenario) (err error) {
	tasks := plan(b.seed, keys, each)
	var trials []*trial
	defer func() {
		for _, t := range trials {
			err = errors.Join(err, t.close(b.keep))
		}
	}()
	for _, c := range b.contenders {
		t, err := newTrial(ctx, c, s, tasks, b.node)
		trials = append(trials, t)
		if err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	results := make([]result, len(trials))
	var all sync.WaitGroup
	for i, t := range trials {
		all.Go(func() {
			v, err := t.run(ctx, b.timeout)
			results[i] = result{t.contender, s, v, err}
			b.say("%s", results[i])
		})
	}
	all.Wait()
	b.results = append(b.results, results...)
	return ctx.Err()
}

// broken returns an error if a contender whose promise is judged has broken it. A process that was
// stopped may work for a moment after it wakes up, and then only a fence keeps it from writing.
func (b *bench) broken() (err error) {
	for _, r := range b.results {
		v := r.verdict
		bad := v.Late - v.Fenced + v.Lost + v.Stuck + v.Charged
		if r.scenario.Name != "stop" {
			bad += v.Overlaps
		}
		if r.contender.judged && (r.err != nil || bad > 0) {
			err = errors.Join(err, fmt.Errorf("%s breaks its promise: %s", r.contender.Name, r))
		}
	}
	return err
}
