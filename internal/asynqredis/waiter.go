package asynqredis

import (
	"strconv"
	"strings"
)

// WaiterName names a task in the line of a resource. The queue's length comes
// first, as both queue and id may hold any character.
func WaiterName(queue, id string) string {
	return strconv.Itoa(len(queue)) + ":" + queue + ":" + id
}

// ParseWaiter takes such a name apart; false when it is none. summon.lua does the same.
func ParseWaiter(name string) (queue, id string, ok bool) {
	length, rest, ok := strings.Cut(name, ":")
	n, err := strconv.Atoi(length)
	if !ok || err != nil || n < 0 || n >= len(rest) || rest[n] != ':' {
		return "", "", false
	}
	return rest[:n], rest[n+1:], true
}
