// Package queueotel reports tasks to OpenTelemetry: traces and metrics of guarded servers, and traces
// of plain asynq programs. It is a module of its own, so that package queue does not depend on
// OpenTelemetry.
//
//	telemetry, err := queueotel.New(queueotel.Config{})
//	...
//	server, err := queue.NewServer(opt, queue.ServerConfig{Observe: telemetry.Observe})
//	...
//	server.Use(telemetry.Middleware)
//	...
//	receipt, err := telemetry.Enqueue(ctx, client, ShipOrder{Order: "536365"}, nil)
//
// # Spans
//
//	enqueue <kind>   producer: from the call of a client to its answer
//	wait <kind>      internal, in the trace of the producer: from the time when the task first found its
//	                 resource busy until it has the lock; linked to the run that handed the lock off
//	run <kind>       consumer, in a trace of its own: one run of the handler; linked to the producer and
//	                 to the wait
//
// The propagator of [Config] writes the trace context into the headers of the task. A run that ends
// with its task snoozed is no error. The next task with the lock learns the trace of the run, which costs
// no call; see [queue.SetTraceparent].
//
// # Metrics
//
// [Telemetry.Observe] makes metrics of [queue.Event] alone. [Telemetry.Watch] adds gauges of the fleet.
package queueotel
