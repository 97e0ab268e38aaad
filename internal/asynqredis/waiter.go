package asynqredis

import (
	"net/url"
	"strings"
)

// waiterPrefix begins the names of tasks that wait, as package lock has it.
const waiterPrefix = "siding-task:"

// Group returns a queue's part of the names of its waiters: their group. The queue may hold any
// character; a colon ends the group.
func Group(queue string) string { return groups.Replace(queue) }

var groups = strings.NewReplacer("%", "%25", ":", "%3A")

// WaiterName names a task in the line of a resource.
func WaiterName(queue, id string) string { return waiterNames(queue) + id }

// waiterNames is what the names of all waiters of a queue begin with.
func waiterNames(queue string) string { return waiterPrefix + Group(queue) + ":" }

// ParseWaiter takes such a name apart; false when it is none. summon.lua does the same.
func ParseWaiter(name string) (queue, id string, ok bool) {
	rest, ok := strings.CutPrefix(name, waiterPrefix)
	group, id, colon := strings.Cut(rest, ":")
	queue, err := url.PathUnescape(group)
	if !ok || !colon || err != nil {
		return "", "", false
	}
	return queue, id, true
}
