package queueotel

import (
	"go.opentelemetry.io/otel/attribute"

	"github.com/sidingq/siding/internal/telemetry"
	"github.com/sidingq/siding/queue"
)

// A naming gives spans their names and attributes.
type naming interface {
	enqueue(kind, queue string) (string, []attribute.KeyValue)
	run(info queue.Info) (string, []attribute.KeyValue)
	wait(info queue.Info) (string, []attribute.KeyValue)
	// id returns the attribute of a task's id.
	id(id string) attribute.KeyValue
}

type ownNames struct{}

func (ownNames) enqueue(kind, queue string) (string, []attribute.KeyValue) {
	return "enqueue " + kind, []attribute.KeyValue{attribute.String("siding.task.kind", kind), attribute.String("siding.queue", queue)}
}

func (ownNames) run(info queue.Info) (string, []attribute.KeyValue) {
	return "run " + info.Kind, own(info)
}

func (ownNames) wait(info queue.Info) (string, []attribute.KeyValue) {
	return "wait " + info.Kind, own(info)
}
func (ownNames) id(id string) attribute.KeyValue { return attribute.String("siding.task.id", id) }

func own(info queue.Info) []attribute.KeyValue {
	return append(common(info), attribute.String("siding.task.kind", info.Kind), attribute.String("siding.task.id", info.ID), attribute.String("siding.queue", info.Queue))
}

// common returns the attributes for which OpenTelemetry's conventions have no name.
func common(info queue.Info) []attribute.KeyValue {
	attrs := []attribute.KeyValue{attribute.Int("siding.task.retried", info.Retried), attribute.Int("siding.task.retries", info.Retries)}
	if info.Resource != "" {
		attrs = append(attrs, attribute.String("siding.resource", info.Resource), attribute.String("siding.resource.class", telemetry.Class(info.Resource)))
	}
	return attrs
}

// messagingNames follow https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/.
type messagingNames struct{}

func (messagingNames) enqueue(kind, queue string) (string, []attribute.KeyValue) {
	return "send " + queue, messaging("send", "send", kind, queue)
}

func (messagingNames) run(info queue.Info) (string, []attribute.KeyValue) {
	return "process " + info.Queue, append(messaging("process", "process", info.Kind, info.Queue), append(common(info), messagingNames{}.id(info.ID))...)
}

// wait names a span that the conventions do not have.
func (messagingNames) wait(info queue.Info) (string, []attribute.KeyValue) {
	return "wait " + info.Queue, append(messaging("wait", "", info.Kind, info.Queue), append(common(info), messagingNames{}.id(info.ID))...)
}

func (messagingNames) id(id string) attribute.KeyValue {
	return attribute.String("messaging.message.id", id)
}

func messaging(operation, kindOfOperation, kind, queue string) []attribute.KeyValue {
	attrs := []attribute.KeyValue{
		attribute.String("messaging.system", "asynq"), attribute.String("messaging.operation.name", operation),
		attribute.String("messaging.destination.name", queue), attribute.String("siding.task.kind", kind),
	}
	if kindOfOperation != "" {
		attrs = append(attrs, attribute.String("messaging.operation.type", kindOfOperation))
	}
	return attrs
}
