package queueotel

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/lockredis"
	"github.com/sidingq/siding/internal/telemetry"
)

// A Reader reads the state of the whole fleet. An [inspect.Inspector] is one.
type Reader interface {
	Held(context.Context) (inspect.List, error)
	Queues(context.Context) ([]inspect.Queue, error)
	Servers(context.Context) ([]inspect.Server, error)
}

// A fleet has the gauges of the whole fleet.
type fleet struct {
	state                                 *telemetry.Fleet
	waiting, held, tasks, paused, servers metric.Int64ObservableGauge
	oldest                                metric.Float64ObservableGauge
}

// Watch adds the gauges of the whole fleet. Each collection of the metrics reads them from Redis within
// 2 s. If Redis cannot be read, the collection leaves them out and reports the error. All programs that
// call Watch report the same: aggregate by max, not by sum. stop takes the gauges away.
func (t *Telemetry) Watch(r Reader) (stop func() error, _ error) {
	if lockredis.None(r) {
		return nil, errors.New("queueotel: want a reader, such as an inspect.Inspector, have nil")
	}
	f := &fleet{state: telemetry.NewFleet(r)}
	var errs []error
	gauge := func(name, unit, text string) metric.Int64ObservableGauge {
		g, err := t.meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(text))
		errs = append(errs, err)
		return g
	}
	f.waiting = gauge("siding.tasks.waiting", "{task}", "Tasks and goroutines that wait for locks, without tasks of paused queues. A task of several resources counts for each.")
	f.held = gauge("siding.locks.held", "{lock}", "Locks of running tasks, and locks for which tasks wait.")
	f.tasks = gauge("siding.queue.tasks", "{task}", "Tasks of an asynq queue. Waiting tasks wait for locks, retrying tasks come again at their time.")
	f.paused = gauge("siding.queue.paused", "1", "1 if an asynq queue is paused, else 0.")
	f.servers = gauge("siding.servers", "{server}", "Servers. Unguarded servers run tasks of guarded queues without their locks.")
	var err error
	f.oldest, err = t.meter.Float64ObservableGauge("siding.task.wait.oldest", metric.WithUnit("s"), metric.WithDescription("The longest time for which one of the waiting tasks and goroutines has waited."))
	registration, rerr := t.meter.RegisterCallback(f.observe, f.waiting, f.held, f.tasks, f.paused, f.servers, f.oldest)
	if err := errors.Join(append(errs, err, rerr)...); err != nil {
		return nil, fmt.Errorf("queueotel: %w", err)
	}
	return registration.Unregister, nil
}

func (f *fleet) observe(ctx context.Context, o metric.Observer) error {
	s, err := f.state.Read(ctx)
	if err != nil {
		return fmt.Errorf("queueotel: the fleet cannot be read: %w", err)
	}
	for name, c := range s.Classes {
		class := attribute.String("siding.resource.class", name)
		for state, n := range c.Held {
			o.ObserveInt64(f.held, int64(n), metric.WithAttributes(class, attribute.String("siding.lock.state", string(state))))
		}
		o.ObserveInt64(f.waiting, int64(c.Waiting), metric.WithAttributes(class))
		o.ObserveFloat64(f.oldest, c.OldestWait.Seconds(), metric.WithAttributes(class))
	}
	for name, q := range s.Queues {
		queue := attribute.String("siding.queue", name)
		for state, n := range q.Tasks {
			o.ObserveInt64(f.tasks, int64(n), metric.WithAttributes(queue, attribute.String("siding.task.state", state)))
		}
		o.ObserveInt64(f.paused, int64(q.Paused), metric.WithAttributes(queue))
	}
	o.ObserveInt64(f.servers, int64(s.Unguarded), metric.WithAttributes(attribute.Bool("siding.unguarded", true)))
	o.ObserveInt64(f.servers, int64(s.Servers-s.Unguarded), metric.WithAttributes(attribute.Bool("siding.unguarded", false)))
	return nil
}
