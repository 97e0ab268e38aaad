// Package queueotel reports tasks to OpenTelemetry: traces and metrics of guarded servers, and traces
// of plain asynq programs. It is a module of its own, so that others do not depend on OpenTelemetry.
//
//	telemetry, err := queueotel.New(queueotel.Config{})
//	...
//	server, err := queue.NewServer(opt, queue.ServerConfig{Guard: queue.GuardConfig{Observe: telemetry.Observe}})
//	...
//	server.Use(telemetry.Middleware)
//	...
//	receipt, err := telemetry.Enqueue(ctx, client, ShipOrder{Order: "536365"}, nil)
//
// # Spans
//
//	enqueue <kind>   producer: from the call of a client to its answer
//	wait <kind>      internal, in the trace of the producer: from the first time at which the task found
//	                 its resource busy until it has the lock; linked to the run that handed the lock off
//	run <kind>       consumer, in a trace of its own: one run of the handler; linked to the producer and
//	                 to the wait
//
// The trace context travels in the headers of the task, by the propagator of the configuration. A run
// whose task had to be parked is no error. The trace of a run that hands its lock off travels in the
// reservation, which costs no call; see [queue.SetTraceparent].
//
// # Metrics
//
// The metrics are those of the worker's /metrics, made of nothing but [queue.Event].
package queueotel
