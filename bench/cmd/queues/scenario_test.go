package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidingq/siding/bench/internal/workload"
	"github.com/sidingq/siding/internal/testenv/expect"
)

// TestPlans counts what plans of full size have.
func TestPlans(t *testing.T) {
	t.Parallel()
	type counts struct{ Tasks, Alone, Keys int }
	want := map[string]counts{
		"H":            {2200, 2000, 2001},
		"hot":          {2000, 0, 1},
		"uncontended":  {20_000, 20_000, 20_000},
		"transfers":    {2000, 0, 49},
		"behind-alone": {1000, 1000, 1000},
		"behind":       {101_000, 1000, 1001},
		"bystander":    {2350, 2000, 2001},
	}
	for _, s := range scenarios() {
		p := s.plan(1)
		have := counts{Tasks: len(p.Tasks)}
		keys := make(map[string]bool)
		for i, alone := range p.Alone() {
			keys[p.Tasks[i].Key] = true
			if alone {
				have.Alone++
			}
		}
		have.Keys = len(keys)
		if have != want[s.Name] {
			t.Errorf("%s: want %+v, have %+v", s.Name, want[s.Name], have)
		}
		checkOrder(t, s.Name, p)
		checkOrder(t, s.Name+", small", s.plan(0.001))
		if diff := cmp.Diff(p, s.plan(1)); diff != "" {
			t.Errorf("%s: want the same plan each time:\n%s", s.Name, diff)
		}
	}
}

// checkOrder: ids are places, and no task is due before the one before it.
func checkOrder(t *testing.T, name string, p workload.Plan) {
	t.Helper()
	last := time.Duration(0)
	for i, task := range p.Tasks {
		expect.Need(t, task.ID == i && task.Key != "" && task.At >= last, "%s: want task %d in its place, have %+v after %v", name, i, task, last)
		last = task.At
	}
	expect.That(t, len(p.Tasks) >= 4, "%s: want some tasks, have %d", name, len(p.Tasks))
}
