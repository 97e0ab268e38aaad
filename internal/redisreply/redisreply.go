// Package redisreply reads what Redis answers, and says which of its errors are worth another try.
package redisreply

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// transient are the codes of refusals that end by themselves.
var transient = []string{
	"ASK", "TRYAGAIN", "MOVED", // a slot moves
	"BUSY",                                // a script takes long
	"CLUSTERDOWN",                         // a part of the Cluster is away
	"LOADING",                             // the data is being loaded
	"MASTERDOWN", "READONLY", "UNBLOCKED", // a failover
	"NOREPLICAS",     // too few replicas are connected
	"OOM", "MISCONF", // no memory for the call, or no disk for what Redis should keep: until somebody sees to it
}

// codeless are parts of refusals that have no code, and end by themselves as well. But for the first they are those of a script
// that names some of its keys itself, while a slot moves or the Cluster is down.
var codeless = []string{
	"ERR max number of clients reached",
	"cript attempted to access a non local key in a cluster node", // Redis 6.2 begins it with "Lua script"
	"undeclared keys were accessed during rehashing of the slot",  // since Redis 7.2, and in Valkey
	"while the cluster is down",
}

// A CallError is an error of a call to Redis: its answer, or why there is none. It tells those of a start from others, such as that
// of a handler that is missing.
type CallError struct{ Err error }

func (e *CallError) Error() string { return e.Err.Error() }

// Unwrap returns the error.
func (e *CallError) Unwrap() error { return e.Err }

// Answered reports whether err is an answer of Redis, and not of the network or the client.
func Answered(err error) bool {
	_, ok := errors.AsType[redis.Error](err)
	return ok
}

// Transient reports whether err is an answer of Redis that passes by itself. The same call, sent
// again later, may succeed. Errors of the network are none, as Redis did not answer.
func Transient(err error) bool {
	answer, ok := errors.AsType[redis.Error](err)
	if !ok {
		return false
	}
	in := func(text string) bool { return strings.Contains(answer.Error(), text) }
	return slices.Contains(transient, codeOf(answer)) || slices.ContainsFunc(codeless, in)
}

// OfConnection reports whether err is an answer of Redis to a password. It says nothing of the call, which may succeed once the
// password is changed here or there.
func OfConnection(err error) bool {
	answer, ok := errors.AsType[redis.Error](err)
	return ok && slices.Contains([]string{"NOAUTH", "WRONGPASS"}, codeOf(answer))
}

func codeOf(answer redis.Error) string {
	code, _, _ := strings.Cut(answer.Error(), " ")
	return code
}

// Text returns a value of an array, "" if there is no such value, or if it is no text.
func Text(array []any, i int) string {
	text, _ := at(array, i).(string)
	return text
}

// Int returns a value of an array which is an integer or its digits, else 0.
func Int(array []any, i int) int64 {
	switch v := at(array, i).(type) {
	case int64:
		return v
	case string:
		if n, err := strconv.ParseInt(v, 10, 64); err == nil {
			return n
		}
	}
	return 0
}

// Duration returns so many of a unit; of more than 292 years it returns these, the longest time there is.
func Duration(n float64, unit time.Duration) time.Duration {
	if ns := n * float64(unit); ns < math.MaxInt64 {
		return time.Duration(ns)
	}
	return math.MaxInt64
}

func at(array []any, i int) any {
	if i >= len(array) {
		return nil
	}
	return array[i]
}
