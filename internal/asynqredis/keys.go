package asynqredis

import "strings"

// Keys of one queue. asynq puts the queue's name in braces, so all of them
// share a Redis Cluster slot.
func prefix(queue string) string        { return "asynq:{" + queue + "}:" }
func taskKeyPrefix(queue string) string { return prefix(queue) + "t:" }
func taskKey(queue, id string) string   { return taskKeyPrefix(queue) + id }
func activeKey(queue string) string     { return prefix(queue) + "active" }
func leaseKey(queue string) string      { return prefix(queue) + "lease" }
func pendingKey(queue string) string    { return prefix(queue) + "pending" }
func retryKey(queue string) string      { return prefix(queue) + "retry" }
func pausedKey(queue string) string     { return prefix(queue) + "paused" }

// bellKey is not asynq's, but shares the slot of its keys.
func bellKey(queue string) string { return "siding:{" + queue + "}:bell" }

// contendedKey lists the locks that tasks of the queue wait for.
func contendedKey(queue string) string { return "siding:{" + queue + "}:contended" }

// queueOf returns the name of the queue that a key belongs to. The key must not
// be a task's, whose end may be anything.
func queueOf(key string) (string, bool) {
	rest, ok := strings.CutPrefix(key, "asynq:{")
	if !ok {
		return "", false
	}
	// A queue's name may hold braces itself: the last "}:" of these keys ends it,
	// as what follows is one of asynq's own words.
	end := strings.LastIndex(rest, "}:")
	if end < 0 {
		return "", false
	}
	return rest[:end], true
}
