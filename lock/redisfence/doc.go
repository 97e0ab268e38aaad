// Package redisfence makes Redis refuse the writes of a lock's former holder. Package lock/sqlfence
// does the same for tables. Its documentation says why the place that is written to has to refuse.
//
// Write under the lock with a Lua script, and have a [Script] run it:
//
//	var sell = redisfence.NewScript(`return redis.call('DECRBY', KEYS[1], ARGV[1])`)
//
//	left, err := sell.Run(ctx, rdb, "sku:85123A", "{sku:85123A}:fence", []string{"{sku:85123A}:stock"}, 3).Int()
//	// errors.Is(err, lock.ErrStale): a later holder is at work
//
// The first key is the fence's. It remembers the highest fencing token that was seen. Use one such
// key for each resource that is locked. Use the same in all scripts that write the resource's data,
// and for nothing else.
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
// The guarantees hold for as long as Redis keeps the key. The key has no expiry on purpose, and a
// script removes one that somebody has set. A fence that has been forgotten lets a late write
// through, however late. So delete the key only together with the data. Do not keep the key on a
// server that evicts keys without an expiry (maxmemory-policy allkeys-...). A failover may forget
// the last writes, fences like all others.
//
// # Where to call it
//
// A task that reads, thinks, and then writes reads with a Script, too. Otherwise the second holder
// may read, and the first one then write late, as no later fence has been seen yet. The second then
// writes what it computed from the old value.
//
// # Keys
//
// On a Redis Cluster all keys of a script must be in one slot. Give the fence's key and the data's
// the same hash tag, as above. Otherwise Redis refuses the script. A redis.Ring does not refuse,
// and needs the same.
//
// # What it does not do
//
// A fence protects the writes of a Script and nothing else: a plain SET is not stopped. A fence
// does not replace the lock. Without a lock, rivals are refused instead of kept apart.
package redisfence
