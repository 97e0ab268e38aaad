package queueotel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/sidingq/siding/internal/telemetry"
	"github.com/sidingq/siding/queue"
)

// metrics are the instruments and their sets of attributes. An event of a known kind and class finds
// its set without an allocation.
type metrics struct {
	acquired, contended, parks, waitsEnded, lost, recovered, endedByPolicy metric.Int64Counter
	waited, handOff, ran                                                   metric.Float64Histogram
	running                                                                metric.Int64UpDownCounter
	sets                                                                   *telemetry.Set[*telemetry.Set[metric.MeasurementOption]] // by kind, then by class
}

func newMetrics(meter metric.Meter) (*metrics, error) {
	var errs []error
	counter := func(name, unit, text string) metric.Int64Counter {
		c, err := meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(text))
		errs = append(errs, err)
		return c
	}
	seconds := func(name, text string, bounds ...float64) metric.Float64Histogram {
		h, err := meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(text), metric.WithExplicitBucketBoundaries(bounds...))
		errs = append(errs, err)
		return h
	}
	m := &metrics{
		acquired:      counter("siding.locks.acquired", "{lock}", "Locks that tasks have acquired. It counts once for a task of several resources."),
		contended:     counter("siding.tasks.contended", "{task}", "Tasks that began to wait for their locks, and had not waited before."),
		parks:         counter("siding.task.parks", "{park}", "How often tasks found their locks busy."),
		waitsEnded:    counter("siding.waits.ended", "{wait}", "Waits after which tasks acquired their locks, by what ended the wait."),
		lost:          counter("siding.locks.lost", "{lock}", "Locks that were lost while their tasks ran, and writes that were refused as stale."),
		recovered:     counter("siding.tasks.recovered", "{task}", "Tasks that this server has put back into their places, as their own workers died or were cut off. Other such tasks are not counted: those without a resource, and those whose crash uses a retry or archives them."),
		endedByPolicy: counter("siding.tasks.ended_by_policy", "{task}", "Tasks that ended without their handlers, as their policy says, by what it did."),
		waited:        seconds("siding.task.wait", "Time from the first park of a task until it had its lock, of tasks that had to wait.", .01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600),
		handOff:       seconds("siding.lock.handoff", "Time from the release of a lock until the task to which it was handed off had it.", .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5),
		ran:           seconds("siding.task.duration", "Time for which a task held its lock; for a task without a resource, the time for which its handler ran.", .001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600),
	}
	var err error
	m.running, err = meter.Int64UpDownCounter("siding.tasks.running", metric.WithUnit("{task}"), metric.WithDescription("Tasks whose handlers run."))
	m.sets = telemetry.NewSet(func(kind string) *telemetry.Set[metric.MeasurementOption] {
		return telemetry.NewSet(func(class string) metric.MeasurementOption {
			return metric.WithAttributeSet(attribute.NewSet(attribute.String("siding.task.kind", kind), attribute.String("siding.resource.class", class)))
		})
	})
	return m, errors.Join(append(errs, err)...)
}

func (m *metrics) observe(e queue.Event) {
	ctx, of := context.Background(), m.sets.Of(e.TaskKind).Of(classOf(e.Resource))
	switch e.Kind {
	case queue.EventParked:
		m.parks.Add(ctx, 1, of)
		if e.Parked == 1 {
			m.contended.Add(ctx, 1, of)
		}
	case queue.EventAcquired:
		m.acquired.Add(ctx, 1, of)
		m.running.Add(ctx, 1, of)
		if e.Via != "" {
			m.waitsEnded.Add(ctx, 1, of, metric.WithAttributes(attribute.String("siding.via", string(e.Via))))
			m.waited.Record(ctx, e.Waited.Seconds(), of)
		}
		if e.HandOff > 0 {
			m.handOff.Record(ctx, e.HandOff.Seconds(), of)
		}
	case queue.EventLost:
		m.lost.Add(ctx, 1, of)
		m.ended(ctx, e, of)
	case queue.EventReleased, queue.EventFinished:
		m.ended(ctx, e, of)
	case queue.EventStarted:
		m.running.Add(ctx, 1, of)
	case queue.EventRecovered:
		m.recovered.Add(ctx, 1, of)
	case queue.EventRejected, queue.EventCoalesced, queue.EventReplaced, queue.EventWaitedTooLong:
		m.endedByPolicy.Add(ctx, 1, of, metric.WithAttributes(attribute.String("siding.outcome", e.Kind.String())))
	}
}

func (m *metrics) ended(ctx context.Context, e queue.Event, of metric.MeasurementOption) {
	m.running.Add(ctx, -1, of)
	m.ran.Record(ctx, e.Held.Seconds(), of, metric.WithAttributes(attribute.String("siding.outcome", telemetry.Outcome(e.Err, e.Kind == queue.EventLost))))
}

// classOf returns the class of a task's resource, "none" for a task without one.
func classOf(resource string) string {
	if resource == "" {
		return "none"
	}
	return telemetry.Class(resource)
}
