package queueotel

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/sidingq/siding/internal/lockredis"
	"github.com/sidingq/siding/queue"
)

// Headers returns headers for a task. They link the runs of the task to the span of ctx. Headers is for
// plain asynq clients:
//
//	task := asynq.NewTaskWithHeaders(kind, payload, telemetry.Headers(ctx))
func (t *Telemetry) Headers(ctx context.Context) map[string]string {
	headers := propagation.MapCarrier{}
	t.propagator.Inject(ctx, headers)
	return headers
}

var errNoClient = errors.New("queueotel: want a client of queues, have nil")

// Enqueue enqueues a task by client, in a producer span. It adds the trace context of that span to the
// headers of the task, and does not change opts. A header that opts sets wins. The results are those
// of [queue.Client.Enqueue].
func (t *Telemetry) Enqueue(ctx context.Context, client *queue.Client, task queue.Task, opts *queue.Options) (queue.Receipt, error) {
	if client == nil {
		return queue.Receipt{}, errNoClient
	}
	ctx, span, traced := t.produce(ctx, task, opts)
	defer span.End()
	receipt, err := client.Enqueue(ctx, task, traced)
	t.produced(span, receipt, err)
	return receipt, err //nolint:wrapcheck // it is the client's
}

// EnqueueBatch enqueues jobs by client, each in a producer span of its own, as [Telemetry.Enqueue]
// does. The results are those of [queue.Client.EnqueueBatch].
func (t *Telemetry) EnqueueBatch(ctx context.Context, client *queue.Client, jobs []queue.Job) ([]queue.Result, error) {
	if client == nil {
		return slices.Repeat([]queue.Result{{Err: errNoClient}}, len(jobs)), errNoClient
	}
	spans, traced := make([]trace.Span, len(jobs)), make([]queue.Job, len(jobs))
	for i, job := range jobs {
		traced[i].Task = job.Task
		_, spans[i], traced[i].Options = t.produce(ctx, job.Task, job.Options)
	}
	results, err := client.EnqueueBatch(ctx, traced)
	for i, r := range results {
		t.produced(spans[i], r.Receipt, r.Err)
		spans[i].End()
	}
	return results, err //nolint:wrapcheck // it is the client's
}

// produce starts the producer span of a task, and returns options with the trace context of the span.
func (t *Telemetry) produce(ctx context.Context, task queue.Task, opts *queue.Options) (context.Context, trace.Span, *queue.Options) {
	var traced queue.Options
	if opts != nil {
		traced = *opts
	}
	kind := ""
	if !lockredis.None(task) { // the client refuses a nil one
		kind = task.Kind()
	}
	ctx, span := t.tracer.Start(ctx, "enqueue "+kind, trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(attribute.String("siding.task.kind", kind), attribute.String("siding.queue", cmp.Or(traced.Queue, "default"))))
	headers := t.Headers(ctx)
	maps.Copy(headers, traced.Headers) // the caller's own win
	traced.Headers = headers
	return ctx, span, &traced
}

func (t *Telemetry) produced(span trace.Span, receipt queue.Receipt, err error) {
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, "not enqueued")
		return
	}
	span.SetAttributes(attribute.String("siding.task.id", receipt.ID))
}
