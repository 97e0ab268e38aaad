package taskredis

import (
	"crypto/md5" //nolint:gosec // asynq's choice
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/sidingq/siding/internal/store"
)

// asynq puts the name of a queue in braces, so all keys of a queue share a slot of a Cluster. The keys
// that are not asynq's are made likewise.

func asynqKey(queue, rest string) string  { return "asynq:{" + queue + "}:" + rest }
func sidingKey(queue, rest string) string { return "siding:{" + queue + "}:" + rest }

// together returns the keys to declare for a script that touches other keys of the same queue, too: these, and one that never
// exists. While a slot of a Cluster moves, its keys are on two masters, and Redis looks for the declared ones alone. As neither
// has the one that never exists, it refuses the call until the slot has moved. Otherwise the script would take each task for
// deleted whose hash is on the other master. scope is the queue; "" on one Redis.
func together(scope string, keys ...string) []string {
	if scope == "" {
		return keys
	}
	return append(keys, sidingKey(scope, "none"))
}

// TaskKey is the hash of a task.
func TaskKey(queue, id string) string { return asynqKey(queue, "t:"+id) }

// PendingKey lists the tasks that servers may take; its right end is the head.
func PendingKey(queue string) string { return asynqKey(queue, "pending") }

// ActiveKey lists the tasks that servers have.
func ActiveKey(queue string) string { return asynqKey(queue, "active") }

// LeaseKey sorts the active tasks by when their leases end, in Unix seconds.
func LeaseKey(queue string) string { return asynqKey(queue, "lease") }

// RetryKey sorts failed and waiting tasks by when they come by themselves, in Unix seconds.
func RetryKey(queue string) string { return asynqKey(queue, "retry") }

// ScheduledKey sorts the tasks that are to run later, in Unix seconds.
func ScheduledKey(queue string) string { return asynqKey(queue, "scheduled") }

// ArchivedKey sorts the tasks that have failed for good by when they did.
func ArchivedKey(queue string) string { return asynqKey(queue, "archived") }

// CompletedKey sorts the tasks that have succeeded and are kept by when they are deleted.
func CompletedKey(queue string) string { return asynqKey(queue, "completed") }

// PausedKey exists while the queue is paused.
func PausedKey(queue string) string { return asynqKey(queue, "paused") }

// GroupKey sorts the tasks of a group that wait to be aggregated by when they came, in Unix seconds.
func GroupKey(queue, group string) string { return asynqKey(queue, "g:"+group) }

// GroupsKey is the set of the queue's groups.
func GroupsKey(queue string) string { return asynqKey(queue, "groups") }

// aggregationSetsKey sorts the aggregation sets of the queue by when their time is over, in Unix seconds.
func aggregationSetsKey(queue string) string { return asynqKey(queue, "aggregation_sets") }

// UniqueKey exists while there is a task that its client wanted to be the only one of its type and payload.
func UniqueKey(queue, kind string, payload []byte) string {
	if payload == nil { // unlike an empty one, as asynq has it
		return asynqKey(queue, "unique:"+kind+":")
	}
	sum := md5.Sum(payload) //nolint:gosec // asynq's choice
	return asynqKey(queue, "unique:"+kind+":"+hex.EncodeToString(sum[:]))
}

// DebounceKey says which of the debounced tasks with the same queue, kind, resource and key came last. The end of its name has
// the same length for all, so no two kinds share one.
func DebounceKey(queue, kind, resource, key string) string {
	sum := sha256.Sum256([]byte(resource + "\n" + key))
	return sidingKey(queue, "debounce:"+kind+":"+hex.EncodeToString(sum[:16]))
}

// queuesKey is the set of the names of all queues. It is not in the slot of any of them.
const queuesKey = "asynq:queues"

// NotifyKey is the list of which an element wakes one idle server of the queue.
func NotifyKey(queue string) string { return sidingKey(queue, "notify") }

// WakeKey is a list by which a server ends its own wait for notifications; scope is as for [LockPrefix].
func WakeKey(scope, session string) string {
	if scope != "" {
		return sidingKey(scope, "wake:"+session)
	}
	return "siding:wake:" + session
}

// ReadyKey sorts the locks that tasks of the queue wait for by when they should be looked at, in µs.
func ReadyKey(queue string) string { return sidingKey(queue, "ready") }

// LineKey sorts the tasks of the queue that wait for a lock by their tickets.
func LineKey(queue, lock string) string { return sidingKey(queue, "line:"+lock) }

// WaitPrefix begins the names of place-locks, for which tasks wait beside their queue while the locks themselves are in a store of
// their own, or in another slot of a Cluster.
const WaitPrefix = "wait:"

// LockPrefix returns what the keys of locks begin with that a step takes. In a Cluster the locks of a queue's tasks are in
// the slot of the queue, and keep the tasks in their places; scope is then the queue, else "".
func LockPrefix(scope, prefix string) string {
	if scope != "" {
		return sidingKey(scope, WaitPrefix+prefix)
	}
	return prefix
}

// ResourceOf returns of which resource a key is the lock, or the lock for which tasks wait, and whether the lock itself is in an
// external store. It returns false for one of another prefix. queue is that in whose slot of a Cluster the key is, or "".
func ResourceOf(key, prefix string) (resource, queue string, elsewhere, ok bool) {
	key = store.LockOf(key)
	if rest, in := strings.CutPrefix(key, "siding:{"); in {
		queue, key, _ = strings.Cut(rest, "}:"+WaitPrefix)
	}
	key, elsewhere = strings.CutPrefix(key, WaitPrefix)
	resource, ok = strings.CutPrefix(key, prefix)
	return resource, queue, elsewhere, ok
}

// LinesKey sorts the queues that have a line for a lock by the tickets of their heads.
func LinesKey(lock string) string { return "{" + lock + "}:lines" }

// HeldKey sorts the locks whose line in the queue is held by when it goes on, in µs; those with +inf have stopped. See hold.lua.
func HeldKey(queue string) string { return sidingKey(queue, "held") }
