package redisstore

import (
	_ "embed"
	"time"

	"github.com/sidingq/siding/internal/store"
)

var (
	//go:embed lock.lua
	lockSource string
	//go:embed wait.lua
	waitSource string
)

// LockLua returns a text in Lua for a script that runs on the server of the lock's keys, not in a
// Cluster. The text defines the local function
//
//	acquire_lock(with, resource, id, holder, waiter)
//
// acquire_lock takes a lock that is free or reserved for waiter. It returns the fields of a
// [store.Grant]. with is a table of [LockArgs].
func LockLua() string { return takeSource + lockSource }

// WaitLua returns a text that comes after that of [LockLua], for locks that are busy. The text defines
// the local functions
//
//	lock_holder(value)
//	join_queue(with, resource, waiter, value, came)
//	join_all(with, resource, waiters)
//
// lock_holder returns the holder's name. join_queue has the waiter join the wait queue, and returns
// what [BusyResult] reads. join_all has many newcomers join.
func WaitLua() string {
	return "local NEXT = '" + store.NextHolder + "'\n" + joinSource + waitSource
}

// LockArgs returns the arguments of the functions of [LockLua]. They are the prefix of the keys of
// locks, the TTL of a lock, and the retentions of its fencing token and wait queue.
func LockArgs(prefix string, ttl, fenceTTL, queueTTL time.Duration) []any {
	return []any{prefix, ms(ttl), ms(fenceTTL), ms(queueTTL)}
}

// ReleaseLua returns a text in Lua that defines the local function
//
//	release_lock(KEYS, ARGV)
//
// The function does what the Release of a [store.Store] does. wake is that of [Waking]. See
// [store.Send].
func ReleaseLua(wake string) string {
	return "local function release_lock(KEYS, ARGV)\n" + withParts(releaseSource, wake) + "\nend\n"
}

// BusyResult reads what join_queue has returned.
func BusyResult(fields []any) (store.Result, error) {
	r := newReply(fields, nil)
	result := r.busy()
	return result, r.err
}
