package asynqredis

import (
	"net/url"
	"strings"
)

// waiterPrefix begins the names of tasks that wait. store.TaskPrefix is the same text.
const waiterPrefix = "siding-task:"

// Group returns a queue's part of the names of its waiters: their group. The queue may hold any
// character; a colon ends the group.
func Group(queue string) string { return groups.Replace(queue) }

var groups = strings.NewReplacer("%", "%25", ":", "%3A")

// WaiterName names a task in the wait queue of a resource.
func WaiterName(queue, id string) string { return WaiterNames(queue) + id }

// WaiterNames is the prefix of the names of all waiters of a queue.
func WaiterNames(queue string) string { return waiterPrefix + Group(queue) + ":" }

// ParseWaiter returns the queue and the id of a waiter's name; false if name is not that of a task.
// wake_next.lua does the same.
func ParseWaiter(name string) (queue, id string, ok bool) {
	rest, ok := strings.CutPrefix(name, waiterPrefix)
	group, id, colon := strings.Cut(rest, ":")
	queue, err := url.PathUnescape(group)
	if !ok || !colon || err != nil {
		return "", "", false
	}
	return queue, id, true
}
