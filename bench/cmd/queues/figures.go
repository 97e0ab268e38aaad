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
	waiting   int             // bytes more in Redis than at begin, at waitingAt; 0 if it was not measured
	waitingAt time.Duration   // since begin
}

// complete reports whether all tasks have run.
func (m *measurement) complete() bool { return m.Done() == len(m.plan.Tasks) }

// A figure is one column of a table.
type figure struct {
	name, unit string
	// whole figures mean nothing unless all tasks have run.
	whole bool
	// of returns false where the figure means nothing.
	of func(*measurement) (float64, bool)
}

func makespan() figure {
	return figure{"makespan", "s", true, func(m *measurement) (float64, bool) {
		return m.Makespan().Seconds(), true
	}}
}

func toIdeal() figure {
	return figure{"makespan", "times the ideal", true, func(m *measurement) (float64, bool) {
		ideal := m.plan.Ideal().Seconds() // of those who run one at a time
		return m.Makespan().Seconds() / ideal, ideal > 0 && !m.unsafe
	}}
}

// toInOrder compares with the best that can be had if no task passes another one on its keys.
func toInOrder() figure {
	return figure{"makespan", "times the ideal in order", true, func(m *measurement) (float64, bool) {
		return m.Makespan().Seconds() / m.plan.InOrder().Seconds(), !m.unsafe
	}}
}

// toWorked leaves out the part of handlers that wait for too long, as timers are late.
func toWorked() figure {
	return figure{"makespan", "times what the busiest key's handlers took", true, func(m *measurement) (float64, bool) {
		took := m.Longest(m.plan.Tasks).Seconds()
		return m.Makespan().Seconds() / took, took > 0 && !m.unsafe
	}}
}

func enqueueing() figure {
	return figure{"enqueued", "tasks/s", true, func(m *measurement) (float64, bool) {
		return float64(len(m.plan.Tasks)) / m.Enqueueing().Seconds(), true
	}}
}

func throughput() figure {
	return figure{"done", "tasks/s", false, func(m *measurement) (float64, bool) {
		return float64(m.Done()) / m.took.Seconds(), m.Done() > 0
	}}
}

func handOff(p float64, name string) figure {
	return figure{"hand-off " + name, "ms", false, func(m *measurement) (float64, bool) {
		if m.unsafe || len(m.handOffs) == 0 {
			return 0, false
		}
		return report.MS(report.Percentile(m.handOffs, p)), true
	}}
}

// meanHandOff shows what the middle hides: a few that take long.
func meanHandOff() figure {
	return figure{"hand-off mean", "ms", false, func(m *measurement) (float64, bool) {
		if m.unsafe || len(m.handOffs) == 0 {
			return 0, false
		}
		var sum time.Duration
		for _, d := range m.handOffs {
			sum += d
		}
		return report.MS(sum) / float64(len(m.handOffs)), true
	}}
}

func handOffTrips(p float64, name string) figure {
	ms := handOff(p, name)
	return figure{"hand-off " + name, "round trips", false, func(m *measurement) (float64, bool) {
		took, ok := ms.of(m)
		return took / report.MS(m.roundTrip), ok && m.roundTrip > 0
	}}
}

// refusals are per task that has company on its key.
func refusals() figure {
	return figure{"refused", "per contended task", false, func(m *measurement) (float64, bool) {
		contended := 0
		for _, alone := range m.alone {
			if !alone {
				contended++
			}
		}
		return float64(m.Refused) / float64(contended), !m.unsafe && contended > 0
	}}
}

func inversions() figure {
	return figure{"out of order", "% of hand-offs", false, func(m *measurement) (float64, bool) {
		n, of := m.Inversions(m.plan.Tasks)
		return 100 * float64(n) / float64(of), !m.unsafe && of > 0
	}}
}

func sent() figure {
	return perTask("commands sent", "per task", func(m *measurement) float64 { return float64(m.sent) }, true)
}

func ran() figure {
	return perTask("commands run", "per task", func(m *measurement) float64 { return float64(m.used.Run()) }, true)
}

func redisCPU() figure {
	return perTask("Redis CPU", "µs per task", func(m *measurement) float64 { return float64(m.used.CPU.Microseconds()) }, true)
}

func clientCPU() figure {
	return perTask("client CPU", "µs per task", func(m *measurement) float64 { return float64(m.cpu.Microseconds()) }, false)
}

func perTask(name, unit string, of func(*measurement) float64, ofRedis bool) figure {
	return figure{name, unit, false, func(m *measurement) (float64, bool) {
		return of(m) / float64(m.Done()), m.Done() > 0 && (m.inRedis || !ofRedis)
	}}
}

func sentRate() figure {
	return rate("commands sent", "1/s", func(m *measurement) float64 { return float64(m.sent) }, true)
}

func ranRate() figure {
	return rate("commands run", "1/s", func(m *measurement) float64 { return float64(m.used.Run()) }, true)
}

func redisShare() figure {
	return rate("Redis CPU", "%", func(m *measurement) float64 { return 100 * m.used.CPU.Seconds() }, true)
}

func clientShare() figure {
	return rate("client CPU", "%", func(m *measurement) float64 { return 100 * m.cpu.Seconds() }, false)
}

func rate(name, unit string, of func(*measurement) float64, ofRedis bool) figure {
	return figure{name, unit, false, func(m *measurement) (float64, bool) {
		return of(m) / m.took.Seconds(), m.inRedis || !ofRedis
	}}
}

// latency is that of tasks with a key of their own. It lasts from the call that enqueues one to the
// start of its handler.
func latency(p float64, name string) figure {
	return figure{"bystanders' latency " + name, "ms", false, func(m *measurement) (float64, bool) {
		all := m.Latencies(m.alone)
		if len(all) == 0 {
			return 0, false
		}
		return report.MS(report.Percentile(all, p)), true
	}}
}

// busiest is how many tasks of the key with a rate have started within a second, at most. A handler
// starts a moment after its task was let go, so one or two more than the rate may be seen.
func busiest() figure {
	return figure{"starts within a second", "at most", false, func(m *measurement) (float64, bool) {
		starts, most, first := m.Starts(m.plan.Tasks, m.plan.Tasks[0].Key), 0, 0
		for i, at := range starts {
			for starts[first] <= at-time.Second {
				first++
			}
			most = max(most, i-first+1)
		}
		return float64(most), most > 0
	}}
}

// gap is the time between a start and the next.
func gap(p float64, name string) figure {
	return figure{"gap between starts " + name, "ms", false, func(m *measurement) (float64, bool) {
		var all []time.Duration
		starts := m.Starts(m.plan.Tasks, m.plan.Tasks[0].Key)
		for i := range len(starts) - 1 {
			all = append(all, starts[i+1]-starts[i])
		}
		if len(all) == 0 {
			return 0, false
		}
		return report.MS(report.Percentile(all, p)), true
	}}
}

// late is how long after the earliest time that its rate allows a task starts, while others of its key wait.
func late(p float64, name string) figure {
	return figure{"start after its time " + name, "ms", true, func(m *measurement) (float64, bool) {
		var all []time.Duration
		starts := m.Starts(m.plan.Tasks, m.plan.Tasks[0].Key)
		for i := m.plan.PerSecond; i < len(starts) && m.plan.PerSecond > 0; i++ {
			all = append(all, max(0, starts[i]-starts[i-m.plan.PerSecond]-time.Second))
		}
		if len(all) == 0 {
			return 0, false
		}
		return report.MS(report.Percentile(all, p)), true
	}}
}

func waitingMemory() figure {
	return figure{"Redis memory", "bytes per waiting task", false, func(m *measurement) (float64, bool) {
		n := m.Waiting(m.Began+m.waitingAt, m.alone)
		return float64(m.waiting) / float64(n), m.inRedis && m.waiting > 0 && n > 0
	}}
}
