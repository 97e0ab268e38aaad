package queueotel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/labels"
)

// readLimit bounds the reading of the fleet's gauges.
const readLimit = 2 * time.Second

// A Reader reads the state of the whole fleet. An [inspect.Inspector] is one.
type Reader interface {
	Held(context.Context) (inspect.List, error)
	Queues(context.Context) ([]inspect.Queue, error)
	Servers(context.Context) ([]inspect.Server, error)
}

// A fleet has the gauges of the whole fleet.
type fleet struct {
	reader                                Reader
	waiting, held, tasks, paused, servers metric.Int64ObservableGauge
	oldest                                metric.Float64ObservableGauge
	classes, queues                       *labels.Set[string]
}

// Watch adds the gauges of the whole fleet. Each collection of the metrics reads them from Redis, within
// 2 s, or leaves them out and reports the error. All programs that call Watch report the same: aggregate
// by max, not by sum. stop takes the gauges away.
func (t *Telemetry) Watch(r Reader) (stop func() error, _ error) {
	same := func(word string) string { return word }
	f := &fleet{reader: r, classes: labels.NewSet(same), queues: labels.NewSet(same)}
	var errs []error
	gauge := func(name, unit, text string) metric.Int64ObservableGauge {
		g, err := t.meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(text))
		errs = append(errs, err)
		return g
	}
	f.waiting = gauge("siding.tasks.waiting", "{task}", "Tasks and goroutines that wait for locks, without tasks of paused queues.")
	f.held = gauge("siding.locks.held", "{lock}", "Locks of running tasks, and those for which tasks wait.")
	f.tasks = gauge("siding.queue.tasks", "{task}", "Tasks of an asynq queue. Waiting ones were parked and have not failed, retrying ones have.")
	f.paused = gauge("siding.queue.paused", "1", "Whether an asynq queue is paused: 1 or 0.")
	f.servers = gauge("siding.servers", "{server}", "Servers, and whether they run tasks of guarded queues without their locks.")
	var err error
	f.oldest, err = t.meter.Float64ObservableGauge("siding.task.wait.oldest", metric.WithUnit("s"), metric.WithDescription("The longest time for which a task has waited."))
	registration, rerr := t.meter.RegisterCallback(f.observe, f.waiting, f.held, f.tasks, f.paused, f.servers, f.oldest)
	if err := errors.Join(append(errs, err, rerr)...); err != nil {
		return nil, fmt.Errorf("queueotel: %w", err)
	}
	return registration.Unregister, nil
}

func (f *fleet) observe(ctx context.Context, o metric.Observer) error {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	locks, err1 := f.reader.Held(ctx)
	queues, err2 := f.reader.Queues(ctx)
	servers, err3 := f.reader.Servers(ctx)
	if err := errors.Join(err1, err2, err3); err != nil {
		return fmt.Errorf("queueotel: the fleet cannot be read: %w", err)
	}
	f.observeLocks(o, locks)
	f.observeQueues(o, queues)
	unguarded := 0
	for _, s := range servers {
		if len(s.Unguarded) > 0 {
			unguarded++
		}
	}
	o.ObserveInt64(f.servers, int64(unguarded), metric.WithAttributes(attribute.Bool("siding.unguarded", true)))
	o.ObserveInt64(f.servers, int64(len(servers)-unguarded), metric.WithAttributes(attribute.Bool("siding.unguarded", false)))
	return nil
}

func (f *fleet) observeLocks(o metric.Observer, locks inspect.List) {
	type lockKey struct {
		class string
		state inspect.LockState
	}
	held, waiting, oldest := make(map[lockKey]int64), make(map[string]int64), make(map[string]float64)
	for _, l := range locks.Locks {
		class := f.classes.Of(labels.Class(l.Resource))
		if l.State != inspect.Free {
			held[lockKey{class, l.State}]++
		}
		if n := l.Waiting - l.Paused; n > 0 {
			waiting[class] += int64(n)
			oldest[class] = max(oldest[class], time.Duration(l.OldestWait).Seconds())
		}
	}
	of := func(class string) attribute.KeyValue { return attribute.String("siding.resource.class", class) }
	for key, n := range held {
		o.ObserveInt64(f.held, n, metric.WithAttributes(of(key.class), attribute.String("siding.lock.state", string(key.state))))
	}
	for class, n := range waiting {
		o.ObserveInt64(f.waiting, n, metric.WithAttributes(of(class)))
		o.ObserveFloat64(f.oldest, oldest[class], metric.WithAttributes(of(class)))
	}
}

func (f *fleet) observeQueues(o metric.Observer, queues []inspect.Queue) {
	tasks := make(map[[2]string]int64) // by queue and state
	paused := make(map[string]int64)
	for _, q := range queues {
		name := f.queues.Of(q.Name)
		for state, n := range map[string]int{
			"pending": q.Pending, "active": q.Active, "scheduled": q.Scheduled, "aggregating": q.Aggregating,
			"waiting": q.Waiting, "retrying": q.Retrying, "archived": q.Archived, "completed": q.Completed,
		} {
			tasks[[2]string{name, state}] += int64(n)
		}
		paused[name] += 0
		if q.Paused {
			paused[name] = 1
		}
	}
	for key, n := range tasks {
		o.ObserveInt64(f.tasks, n, metric.WithAttributes(attribute.String("siding.queue", key[0]), attribute.String("siding.task.state", key[1])))
	}
	for name, n := range paused {
		o.ObserveInt64(f.paused, n, metric.WithAttributes(attribute.String("siding.queue", name)))
	}
}
