package queueotel

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/sidingq/siding/internal/engine"
	"github.com/sidingq/siding/internal/telemetry"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// w3c reads and writes the traceparent that a run hands off with its lock.
var w3c propagation.TraceContext

// Middleware runs each task in a consumer span, which also ends if the handler panics, and makes a span of its
// wait, if it had to wait. Middleware is for [queue.Server.Use], and for the Use of an asynq.ServeMux, which may
// be that of a plain asynq.Server.
func (t *Telemetry) Middleware(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		info := infoOf(ctx, task)
		ctx = t.propagator.Extract(ctx, propagation.MapCarrier(task.Headers()))
		var links []trace.Link
		if producer := trace.SpanContextFromContext(ctx); producer.IsValid() {
			links = append(links, trace.Link{SpanContext: producer})
		}
		if e, waited := ctx.Value(engine.WaitKey{}).(queue.Event); waited {
			links = append(links, trace.Link{SpanContext: t.recordWait(ctx, info, e)})
		}
		ctx, span := t.tracer.Start(ctx, "run "+info.Kind, trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindConsumer), trace.WithLinks(links...), attributes(info))
		if info.Resource != "" {
			if fence := lock.Fence(ctx, info.Resource); fence > 0 { // several resources have one each
				span.SetAttributes(attribute.Int64("siding.fence", fence))
			}
			handOn(ctx)
		}
		err := errNotReturned
		defer func() { end(ctx, span, err) }()
		err = next.ProcessTask(ctx, task)
		return err //nolint:wrapcheck // it is the handler's
	})
}

// errNotReturned is the error of a handler that panicked, or ended its goroutine.
var errNotReturned = errors.New("the handler did not return")

// infoOf returns the Info of an attempt, also of one that a plain asynq.Server runs.
func infoOf(ctx context.Context, task *asynq.Task) queue.Info {
	if info := queue.InfoFrom(ctx); info.ID != "" {
		return info
	}
	info := queue.Info{Kind: task.Type()}
	info.ID, _ = asynq.GetTaskID(ctx)
	info.Queue, _ = asynq.GetQueueName(ctx)
	info.Retried, _ = asynq.GetRetryCount(ctx)
	info.Retries, _ = asynq.GetMaxRetry(ctx)
	return info
}

// attributes are those of a run or a wait.
func attributes(info queue.Info) trace.SpanStartEventOption {
	attrs := []attribute.KeyValue{
		attribute.String("siding.task.kind", info.Kind), attribute.String("siding.task.id", info.ID), attribute.String("siding.queue", info.Queue),
		attribute.Int("siding.task.retried", info.Retried), attribute.Int("siding.task.retries", info.Retries),
	}
	if info.Resource != "" {
		attrs = append(attrs, attribute.String("siding.resource", info.Resource), attribute.String("siding.resource.class", telemetry.Class(info.Resource)))
	}
	return trace.WithAttributes(attrs...)
}

// handOn hands the trace of ctx off with the task's lock.
func handOn(ctx context.Context) {
	carrier := propagation.MapCarrier{}
	w3c.Inject(ctx, carrier)
	if value := carrier["traceparent"]; value != "" {
		_ = queue.SetTraceparent(ctx, value) // value is a traceparent
	}
}

// end ends the span of a run. A snoozed task is no error.
func end(ctx context.Context, span trace.Span, err error) {
	outcome := telemetry.Outcome(engine.OfShutdown(ctx, err), errors.Is(context.Cause(ctx), lock.ErrLost) || errors.Is(err, lock.ErrStale))
	switch outcome {
	case telemetry.Lost:
		span.SetStatus(codes.Error, "the lock was lost")
	case telemetry.Failed:
		span.RecordError(err)
		span.SetStatus(codes.Error, "failed")
	}
	span.SetAttributes(attribute.String("siding.outcome", outcome))
	span.End()
}

// Observe counts an event. It is for [queue.ServerConfig].
func (t *Telemetry) Observe(e queue.Event) { t.metrics.observe(e) }

// recordWait records the span of a wait that has ended just now, in the trace of the producer. It returns the span's context.
func (t *Telemetry) recordWait(ctx context.Context, info queue.Info, e queue.Event) trace.SpanContext {
	ended := time.Now()
	opts := []trace.SpanStartOption{
		trace.WithTimestamp(ended.Add(-e.Waited)), attributes(info),
		trace.WithAttributes(attribute.String("siding.via", string(e.Via))),
	}
	releaser := w3c.Extract(trace.ContextWithRemoteSpanContext(ctx, trace.SpanContext{}), propagation.MapCarrier{"traceparent": e.ReleasedBy})
	if run := trace.SpanContextFromContext(releaser); run.IsValid() {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: run}))
	}
	_, span := t.tracer.Start(ctx, "wait "+info.Kind, opts...)
	span.End(trace.WithTimestamp(ended))
	return span.SpanContext()
}
