// Package redisfence makes Redis refuse the writes of a lock's former holder. It
// is to data in Redis what package lock/sqlfence is to tables, whose
// documentation says why the place that is written to has to refuse.
//
// Write under the lock with a Lua script, as one would anyway where several
// commands belong together, and have a [Script] run it:
//
//	var sell = redisfence.NewScript(`return redis.call('DECRBY', KEYS[1], ARGV[1])`)
//
//	left, err := sell.Run(ctx, rdb, "sku:85123A", "{sku:85123A}:fence", []string{"{sku:85123A}:stock"}, 3).Int()
//	// errors.Is(err, lock.ErrStale): a later holder is at work
//
// The first key is the fence's: it remembers the highest fencing token that was
// seen. Use one for each resource that is locked, the same in all scripts that
// write the resource's data, and for nothing else.
//
// # What it guarantees
//
//   - Once a script has run with a fence, none runs with a lower one for the same
//     key of a fence.
//   - Comparing, raising and the script are one step on the server: nobody reads
//     or writes in between.
//   - The same fence is accepted again, as a holder may write more than once. So
//     a call that go-redis repeats because its answer was lost may run twice.
//
// The guarantees hold for as long as Redis keeps the key. It has no expiry on
// purpose, and a script takes away one that it was given: a fence that has been
// forgotten lets a late write through, however late. So delete the key only
// together with the data, do not keep it on a server that evicts keys without an
// expiry (maxmemory-policy allkeys-...), and know that a failover may forget the
// last writes, fences like all others.
//
// # Where to call it
//
// A task that reads, thinks, and then writes reads with a Script, too. With the
// write alone the second holder may read, the first one write late (no later fence
// has been seen yet), and the second write what it computed from the old value.
//
// # Keys
//
// On a Redis Cluster all keys of a script must be in one slot: give the fence's
// key and the data's the same hash tag, as above. Otherwise Redis refuses the
// script. A redis.Ring does not refuse, and needs the same.
//
// # What it does not do
//
// It protects what is written by a Script and nothing else: a plain SET is not
// stopped. It does not replace the lock: without one, rivals are refused instead
// of kept apart.
package redisfence
