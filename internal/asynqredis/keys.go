package asynqredis

import "strings"

// asynq puts a queue's name in braces, so all keys of one queue share a Redis Cluster slot.

// Prefix begins all of asynq's keys of a queue.
func Prefix(queue string) string { return "asynq:{" + queue + "}:" }

// TaskKeyPrefix begins the keys of a queue's tasks.
func TaskKeyPrefix(queue string) string { return Prefix(queue) + "t:" }

// TaskKey is the hash of a task.
func TaskKey(queue, id string) string { return TaskKeyPrefix(queue) + id }

// ActiveKey lists the tasks that workers have.
func ActiveKey(queue string) string { return Prefix(queue) + "active" }

// LeaseKey sorts the active tasks by when their leases end.
func LeaseKey(queue string) string { return Prefix(queue) + "lease" }

// PendingKey lists the tasks that workers may take; its right end is the head.
func PendingKey(queue string) string { return Prefix(queue) + "pending" }

// RetryKey sorts parked and failed tasks by when they come by themselves.
func RetryKey(queue string) string { return Prefix(queue) + "retry" }

// PausedKey exists while the queue is paused.
func PausedKey(queue string) string { return Prefix(queue) + "paused" }

// NotifyKey is not asynq's, but shares the slot of its keys.
func NotifyKey(queue string) string { return "siding:{" + queue + "}:notify" }

// ContendedKey lists the locks that tasks of the queue wait for.
func ContendedKey(queue string) string { return "siding:{" + queue + "}:contended" }

// QueueOf returns the name of the queue that a key belongs to. The key must not be that of a task, as
// an id may hold any character.
func QueueOf(key string) (string, bool) {
	rest, ok := strings.CutPrefix(key, "asynq:{")
	if !ok {
		return "", false
	}
	// A queue's name may hold braces itself. The last "}:" of the key ends the name, as one of
	// asynq's own words follows.
	end := strings.LastIndex(rest, "}:")
	if end < 0 {
		return "", false
	}
	return rest[:end], true
}
