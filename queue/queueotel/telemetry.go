package queueotel

import (
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// scope names the instrumentation, as OpenTelemetry wants it.
const scope = "github.com/sidingq/siding/queue/queueotel"

// Config configures a [Telemetry]. A nil field stands for the global provider or propagator of package
// otel at the time of [New].
type Config struct {
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
	// Propagator writes the trace context into the headers of tasks, and reads it there. The global
	// propagator does nothing until a program sets it. Runs then have no links to their producers.
	Propagator propagation.TextMapPropagator
}

// A Telemetry reports what happens to tasks. It is safe for concurrent use. [New] makes it.
type Telemetry struct {
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator
	meter      metric.Meter
	metrics    *metrics
}

// New returns a Telemetry. The error is that of an instrument which the MeterProvider refuses.
func New(cfg Config) (*Telemetry, error) {
	if cfg.TracerProvider == nil {
		cfg.TracerProvider = otel.GetTracerProvider()
	}
	if cfg.MeterProvider == nil {
		cfg.MeterProvider = otel.GetMeterProvider()
	}
	if cfg.Propagator == nil {
		cfg.Propagator = otel.GetTextMapPropagator()
	}
	meter := cfg.MeterProvider.Meter(scope)
	m, err := newMetrics(meter)
	if err != nil {
		return nil, fmt.Errorf("queueotel: %w", err)
	}
	return &Telemetry{
		tracer: cfg.TracerProvider.Tracer(scope), propagator: cfg.Propagator, meter: meter, metrics: m,
	}, nil
}
