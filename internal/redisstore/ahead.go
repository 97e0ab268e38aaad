package redisstore

import (
	_ "embed"
	"time"

	"github.com/sidingq/siding/internal/store"
)

//go:embed ahead.lua
var aheadSource string

// Ahead returns a text in Lua for scripts that run where the lock's keys are, which
// excludes those on a Cluster. It defines the local functions
//
//	take_ahead(with, resource, id, holder, waiter)
//	held_ahead(value)
//	join_ahead(with, resource, waiter, value)
//
// The first takes a lock as [store.Store] does, if that can be had at once, and returns what makes
// a lock.Grant. The others name its holder, and have the waiter join its line, for which they
// return what [Refusal] reads. with is a table of [AheadArgs].
func Ahead() string { return takeSource + joinSource + aheadSource }

// AheadArgs returns what the functions of [Ahead] are given: what the keys of locks begin with, for
// how long a lock lives, and how long its fencing token and its line are remembered.
func AheadArgs(prefix string, ttl, grantKeep, lineKeep time.Duration) []any {
	return []any{prefix, ms(ttl), ms(grantKeep), ms(lineKeep)}
}

// Release returns a text in Lua that defines the local function
//
//	release_ahead(KEYS, ARGV)
//
// which does what the Store's Release does. summon is that of [Calling]. See [store.Send].
func Release(summon string) string {
	return "local function release_ahead(KEYS, ARGV)\n" + withParts(releaseSource, summon) + "\nend\n"
}

// Refusal reads what join_ahead has returned.
func Refusal(fields []any) (store.Answer, error) {
	r := newReply(fields, nil)
	a := r.refusal()
	return a, r.err
}
