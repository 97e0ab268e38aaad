package queueotel_test

import (
	"context"
	"errors"
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/queue/queueotel"
)

// A state is what a fleet looks like.
type state struct{ err error }

func (s state) Held(context.Context) (inspect.List, error) {
	return inspect.List{Locks: []inspect.Lock{
		{Resource: "order:1", State: inspect.Held, Waiting: 3, Paused: 1, OldestWait: inspect.Duration(2 * time.Second)},
		{Resource: "order:2", State: inspect.Foreign, Waiting: 1, OldestWait: inspect.Duration(time.Second)},
		{Resource: "order:3", State: inspect.Free},
	}}, s.err
}

func (s state) Queues(context.Context) ([]inspect.Queue, error) {
	return []inspect.Queue{{Name: "low", Paused: true, Waiting: 5, Retrying: 6}}, nil
}

func (s state) Servers(context.Context) ([]inspect.Server, error) {
	return []inspect.Server{{}, {Unguarded: []string{"low"}}, {Guarded: true}}, nil
}

// What tasks did, and what the fleet looks like, is counted once.
func TestCounts(t *testing.T) {
	t.Parallel()
	b := &bench{reader: sdkmetric.NewManualReader()}
	telemetry := expect.Value(queueotel.New(queueotel.Config{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(b.reader))}))(t)
	stop := expect.Value(telemetry.Watch(state{}))(t)
	for n := range 3 {
		telemetry.Observe(queue.Event{Kind: queue.EventParked, Resource: "order:1", Parked: n + 1})
	}
	for _, kind := range []queue.EventKind{queue.EventRecovered, queue.EventRejected, queue.EventAcquired, queue.EventLost} {
		telemetry.Observe(queue.Event{Kind: kind, Resource: "order:1"})
	}
	telemetry.Observe(queue.Event{Kind: queue.EventStarted}) // a task without a resource
	telemetry.Observe(queue.Event{Kind: queue.EventFinished})
	b.want(t, map[string]int64{
		"siding.locks.acquired": 1, "siding.tasks.contended": 1, "siding.task.parks": 3, "siding.tasks.recovered": 1, "siding.tasks.ended_by_policy": 1,
		"siding.locks.lost": 1, "siding.tasks.running": 0, "siding.task.duration": 2, "siding.waits.ended": 0, "siding.tasks.waiting": 3, "siding.locks.held": 2,
		"siding.queue.paused": 1, "siding.queue.tasks waiting": 5, "siding.queue.tasks retrying": 6, "siding.servers": 3,
	})
	expect.OK(t, stop())
	b.want(t, map[string]int64{"siding.tasks.waiting": 0, "siding.servers": 0})
}

var _ queueotel.Reader = (*inspect.Inspector)(nil)

func TestNil(t *testing.T) {
	t.Parallel()
	telemetry := expect.Value(queueotel.New(queueotel.Config{}))(t)
	const noClient = "queueotel: want a client of queues, have nil"
	if _, err := telemetry.Enqueue(t.Context(), nil, nil, nil); err == nil || err.Error() != noClient {
		t.Errorf("enqueue: want %q, have %v", noClient, err)
	}
	if results, err := telemetry.EnqueueBatch(t.Context(), nil, []queue.Job{{}}); err == nil || err.Error() != noClient || len(results) != 1 || !errors.Is(results[0].Err, err) {
		t.Errorf("batch: want %q for the call and its job, have %v, %+v", noClient, err, results)
	}
	const noReader = "queueotel: want a reader, such as an inspect.Inspector, have nil"
	for _, r := range []queueotel.Reader{nil, (*inspect.Inspector)(nil)} {
		if _, err := telemetry.Watch(r); err == nil || err.Error() != noReader {
			t.Errorf("watch: want %q, have %v", noReader, err)
		}
	}
}

// A fleet that cannot be read has no gauges, and the error is reported.
func TestFleetThatCannotBeRead(t *testing.T) {
	t.Parallel()
	reader, away := sdkmetric.NewManualReader(), errors.New("redis is away")
	telemetry, err := queueotel.New(queueotel.Config{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
	if err != nil {
		t.Fatal(err)
	}
	expect.OK(t, expect.Err(telemetry.Watch(state{err: away})))
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); !errors.Is(err, away) {
		t.Errorf("want %v, have %v", away, err)
	}
}
