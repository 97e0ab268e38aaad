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
	inRedis   bool            // keeps its tasks in Redis
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

// perTask and perSecond divide what a run cost. What it cost in Redis means nothing for those that keep their tasks elsewhere.
func perTask(name, unit string, ofRedis bool, of func(*measurement) float64) figure {
	return figure{name, unit, false, func(m *measurement) (float64, bool) {
		return of(m) / float64(m.Done()), m.Done() > 0 && (m.inRedis || !ofRedis)
	}}
}

func perSecond(name, unit string, ofRedis bool, of func(*measurement) float64) figure {
	return figure{name, unit, false, func(m *measurement) (float64, bool) {
		return of(m) / m.took.Seconds(), m.inRedis || !ofRedis
	}}
}

func (m *measurement) commandsSent() float64 { return float64(m.sent) }
func (m *measurement) commandsRun() float64  { return float64(m.used.Run()) }

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
	enqueueing = figure{"enqueued", "tasks/s", true, func(m *measurement) (float64, bool) {
		return float64(len(m.plan.Tasks)) / m.Enqueueing().Seconds(), true
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
	// refusals are per task that has company on its key.
	refusals = figure{"refused", "per contended task", false, func(m *measurement) (float64, bool) {
		contended := 0
		for _, alone := range m.alone {
			if !alone {
				contended++
			}
		}
		return float64(m.Refused) / float64(contended), !m.unsafe && contended > 0
	}}
	inversions = figure{"out of order", "% of hand-offs", false, func(m *measurement) (float64, bool) {
		n, of := m.Inversions(m.plan.Tasks)
		return 100 * float64(n) / float64(of), !m.unsafe && of > 0
	}}

	handOffs = []figure{
		handOffP50, meanHandOff, handOffP99, times("hand-off", "max", (*measurement).locked), refusals, inversions,
	}
	costs = []figure{
		perTask("commands sent", "per task", true, (*measurement).commandsSent),
		perTask("commands run", "per task", true, (*measurement).commandsRun),
		perTask("Redis CPU", "µs per task", true, func(m *measurement) float64 { return float64(m.used.CPU.Microseconds()) }),
		perTask("client CPU", "µs per task", false, func(m *measurement) float64 { return float64(m.cpu.Microseconds()) }),
	}
	load = []figure{
		perSecond("commands sent", "1/s", true, (*measurement).commandsSent),
		perSecond("commands run", "1/s", true, (*measurement).commandsRun),
		perSecond("Redis CPU", "%", true, func(m *measurement) float64 { return 100 * m.used.CPU.Seconds() }),
		perSecond("client CPU", "%", false, func(m *measurement) float64 { return 100 * m.cpu.Seconds() }),
	}
	// latencies are those of tasks with a key of their own. Each lasts from the call that enqueues one to the start of its handler.
	latencies = []figure{times("bystanders' latency", "p50", ofBystanders), times("bystanders' latency", "p99", ofBystanders)}
)

func ofBystanders(m *measurement) []time.Duration { return m.Latencies(m.alone) }
