package main

import (
	"time"

	"github.com/sidingq/siding/bench/internal/redisstat"
	"github.com/sidingq/siding/bench/internal/report"
)

// A measurement is what one run of a contender gave.
type measurement struct {
	course
	outcome

	unsafe    bool
	alone     []bool          // which tasks have a key of their own
	handOffs  []time.Duration // see trace.HandOffs
	roundTrip time.Duration   // of a script that does nothing, in the middle
	took      time.Duration   // from begin to end
	used      redisstat.Usage // of Redis, in that time
}

// complete reports whether all tasks have run.
func (m *measurement) complete() bool { return m.Done() == len(m.plan.Tasks) }

// locked returns how long each hand-off took, none of those who do not exclude others.
func (m *measurement) locked() []time.Duration {
	if m.unsafe {
		return nil
	}
	return m.handOffs
}

// A figure is one column of a table.
type figure struct {
	name, unit string
	// whole figures mean nothing unless all tasks have run.
	whole bool
	// of returns false where the figure means nothing.
	of func(*measurement) (float64, bool)
}

// times is a percentile of some times in ms.
func times(name, percentile string, of func(*measurement) []time.Duration) figure {
	p := map[string]float64{"p50": 50, "p99": 99, "max": 100}[percentile]
	return figure{name + " " + percentile, "ms", false, func(m *measurement) (float64, bool) {
		all := of(m)
		if len(all) == 0 {
			return 0, false
		}
		return report.MS(report.Percentile(all, p)), true
	}}
}

// perTask divides what a run cost.
func perTask(name, unit string, of func(*measurement) float64) figure {
	return figure{name, unit, false, func(m *measurement) (float64, bool) {
		return of(m) / float64(m.Done()), m.Done() > 0
	}}
}

var (
	makespan = figure{"makespan", "s", true, func(m *measurement) (float64, bool) { return m.Makespan().Seconds(), true }}
	// toInOrder compares with the best that can be had if no task passes another one on its keys.
	toInOrder = figure{"makespan", "times the ideal in order", true, func(m *measurement) (float64, bool) {
		return m.Makespan().Seconds() / m.plan.InOrder().Seconds(), !m.unsafe
	}}
	// toWorked leaves out the part of handlers that wait for too long, as timers are late.
	toWorked = figure{"makespan", "times what the busiest key's handlers took", true, func(m *measurement) (float64, bool) {
		took := m.Longest(m.plan.Tasks).Seconds()
		return m.Makespan().Seconds() / took, took > 0 && !m.unsafe
	}}
	throughput = figure{"done", "tasks/s", false, func(m *measurement) (float64, bool) {
		return float64(m.Done()) / m.took.Seconds(), m.Done() > 0
	}}

	handOffP50, handOffP99 = times("hand-off", "p50", (*measurement).locked), times("hand-off", "p99", (*measurement).locked)

	// meanHandOff shows what the middle hides: a few that take long.
	meanHandOff = figure{"hand-off mean", "ms", false, func(m *measurement) (float64, bool) {
		var sum time.Duration
		for _, d := range m.locked() {
			sum += d
		}
		return report.MS(sum) / float64(len(m.handOffs)), len(m.locked()) > 0
	}}
	inversions = figure{"out of order", "% of hand-offs", false, func(m *measurement) (float64, bool) {
		n, of := m.Inversions(m.plan.Tasks)
		return 100 * float64(n) / float64(of), !m.unsafe && of > 0
	}}

	handOffs = []figure{
		handOffP50, meanHandOff, handOffP99, times("hand-off", "max", (*measurement).locked), inversions,
	}
	costs = []figure{
		perTask("commands sent", "per task", func(m *measurement) float64 { return float64(m.sent) }),
		perTask("commands run", "per task", func(m *measurement) float64 { return float64(m.used.Run()) }),
		perTask("Redis CPU", "µs per task", func(m *measurement) float64 { return float64(m.used.CPU.Microseconds()) }),
		perTask("client CPU", "µs per task", func(m *measurement) float64 { return float64(m.cpu.Microseconds()) }),
	}
	// latencies are those of tasks with a key of their own. Each lasts from the call that enqueues one to the start of its handler.
	latencies = []figure{times("bystanders' latency", "p50", ofBystanders), times("bystanders' latency", "p99", ofBystanders)}
)

func ofBystanders(m *measurement) []time.Duration { return m.Latencies(m.alone) }
