// Package metrics counts what happens to the tasks of a worker, and serves the figures in the format of
// Prometheus. The counters and histograms are made of [queue.Event] and nothing else. The gauges of the
// fleet are read from Redis, see [Metrics.Watch].
//
// No label is the name of a resource, the id of a task, or a host. Package telemetry bounds their number.
package metrics

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sidingq/siding/internal/telemetry"
	"github.com/sidingq/siding/queue"
)

// The buckets of the histograms, in seconds.
var (
	waitBuckets     = []float64{.001, .005, .01, .05, .1, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600}
	handOffBuckets  = []float64{.00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}
	durationBuckets = []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
)

// Metrics are the figures of one worker. They are safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry

	classes *telemetry.Set[*class]
	kinds   *telemetry.Set[*kind]
	queues  *telemetry.Set[prometheus.Observer]
}

// A class has the figures of a class of resources.
type class struct {
	acquired, parks, contended prometheus.Counter
	ended                      map[queue.Via]prometheus.Counter // waits
	waited                     prometheus.Observer
}

// A kind has the figures of a kind of task.
type kind struct {
	running         prometheus.Gauge
	lost, recovered prometheus.Counter
	done, failed    prometheus.Observer
	durations       prometheus.ObserverVec // by the outcome, for the rare ones
	ended           *prometheus.CounterVec // by what its policy did
}

// New returns figures that are all zero, besides those of the Go runtime and of the process.
func New() *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	counter := func(name, help string, by ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, by)
		m.registry.MustRegister(c)
		return c
	}
	histogram := func(name, help string, buckets []float64, by ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, by)
		m.registry.MustRegister(h)
		return h
	}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	acquired := counter("siding_locks_acquired_total", "Locks that tasks have acquired. It counts once for a task of several resources, and for each task of a batch.", "class")
	parks := counter("siding_task_parks_total", "How often tasks found their locks busy. A task may find its lock busy more than once.", "class")
	contended := counter("siding_tasks_contended_total", "Tasks that began to wait for their locks, and had not waited before. Divided by the locks acquired, that is the share of tasks that had to wait.", "class")
	waitsEnded := counter("siding_waits_ended_total", "Waits after which tasks acquired their locks, by what ended the wait: handoff; limit, if a limit let them start; batch, if the first task of a batch took them along; or recovery, if nobody had released the lock. Many by recovery mean that holders die, or are programs that tell nobody when they leave.", "class", "via")
	waited := histogram("siding_task_wait_seconds", "Time from the first park of a task until it had its lock, of tasks that had to wait.", waitBuckets, "class")
	m.classes = telemetry.NewSet(func(name string) *class {
		c := &class{
			acquired: acquired.WithLabelValues(name), parks: parks.WithLabelValues(name), contended: contended.WithLabelValues(name),
			ended: make(map[queue.Via]prometheus.Counter), waited: waited.WithLabelValues(name),
		}
		for _, via := range []queue.Via{queue.ViaHandOff, queue.ViaLimit, queue.ViaBatch, queue.ViaRecovery} {
			c.ended[via] = waitsEnded.WithLabelValues(name, string(via))
		}
		return c
	})

	running := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "siding_tasks_running", Help: "Tasks whose handlers run in this worker."}, []string{"kind"})
	m.registry.MustRegister(running)
	lost := counter("siding_locks_lost_total", "Locks that were lost while their tasks ran, and writes that were refused as stale.", "kind")
	recovered := counter("siding_tasks_recovered_total", "Tasks that this worker has put back into their places, as their own workers died or were cut off. Other such tasks are not counted: those without a resource, and those whose crash uses a retry or archives them.", "kind")
	ended := counter("siding_tasks_ended_by_policy_total", "Tasks that ended without their handlers, as their policy says, by what it did: rejected, coalesced, replaced, or waited_too_long.", "kind", "outcome")
	durations := histogram("siding_task_duration_seconds", "Time for which a task held its lock; for a task without a resource, the time for which its handler ran. snoozed: the handler found a second lock busy, or something missing that all tasks need, or the task was put back. lost: the lock was lost, or a write was refused as stale.", durationBuckets, "kind", "outcome")
	m.kinds = telemetry.NewSet(func(name string) *kind {
		of := durations.MustCurryWith(prometheus.Labels{"kind": name})
		return &kind{
			running: running.WithLabelValues(name), lost: lost.WithLabelValues(name), recovered: recovered.WithLabelValues(name),
			done: of.WithLabelValues(telemetry.Done), failed: of.WithLabelValues(telemetry.Failed), durations: of,
			ended: ended.MustCurryWith(prometheus.Labels{"kind": name}),
		}
	})

	handOffs := histogram("siding_lock_handoff_seconds", "Time from the release of a lock until the task to which it was handed off had it.", handOffBuckets, "queue")
	m.queues = telemetry.NewSet(func(name string) prometheus.Observer { return handOffs.WithLabelValues(name) })
	return m
}

// Kinds starts the figures of kinds of tasks at zero. So Prometheus sees the first event of each kind as
// a rise.
func (m *Metrics) Kinds(kinds []string) {
	for _, name := range kinds {
		m.kinds.Of(name)
	}
}

// Observe counts an event. It allocates nothing for a known class, kind and queue.
func (m *Metrics) Observe(e queue.Event) {
	switch e.Kind {
	case queue.EventParked:
		c := m.classes.Of(telemetry.Class(e.Resource))
		c.parks.Inc()
		if e.Parked == 1 {
			c.contended.Inc()
		}
	case queue.EventAcquired:
		m.acquired(e)
	case queue.EventStarted:
		m.kinds.Of(e.TaskKind).running.Inc()
	case queue.EventReleased, queue.EventFinished, queue.EventLost:
		m.ended(e)
	case queue.EventRecovered:
		m.kinds.Of(e.TaskKind).recovered.Inc()
	case queue.EventRejected, queue.EventCoalesced, queue.EventReplaced, queue.EventWaitedTooLong:
		m.kinds.Of(e.TaskKind).ended.WithLabelValues(e.Kind.String()).Inc()
	}
}

func (m *Metrics) acquired(e queue.Event) {
	m.kinds.Of(e.TaskKind).running.Inc()
	c := m.classes.Of(telemetry.Class(e.Resource))
	c.acquired.Inc()
	if e.HandOff > 0 {
		m.queues.Of(e.Queue).Observe(e.HandOff.Seconds())
	}
	if ended := c.ended[e.Via]; ended != nil { // else it did not wait
		ended.Inc()
		c.waited.Observe(e.Waited.Seconds())
	}
}

func (m *Metrics) ended(e queue.Event) {
	k, lost := m.kinds.Of(e.TaskKind), e.Kind == queue.EventLost
	k.running.Dec()
	if lost {
		k.lost.Inc()
	}
	ran := k.done
	switch outcome := telemetry.Outcome(e.Err, lost); outcome {
	case telemetry.Done:
	case telemetry.Failed:
		ran = k.failed
	default:
		ran = k.durations.WithLabelValues(outcome)
	}
	ran.Observe(e.Held.Seconds())
}

// Handler returns the handler of GET /metrics. It serves four requests at a time, and answers others
// with 503.
func (m *Metrics) Handler() http.Handler {
	const atOnce = 4 // anybody may ask
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: atOnce})
}
