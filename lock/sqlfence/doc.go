// Package sqlfence makes a database refuse the writes of a lock's former holder.
//
// A lock that expires cannot stop its holder. A process that was paused for longer than the lock
// lives wakes up believing that it still holds the lock. Its next write overwrites its successor's.
// No check by the holder helps, as the pause may come right after the check. Only the place that is
// written to can refuse. So each acquisition comes with a fencing token ([lock.Fence]), a number
// that grows from holder to holder. The row remembers the highest token that it has seen. See
// Martin Kleppmann, "How to do distributed locking", 2016,
// https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html.
//
// Give your table a column for it,
//
//	ALTER TABLE stock ADD COLUMN fence BIGINT NOT NULL DEFAULT 0;
//
// and call [Table.Advance] first in every transaction that acts under the lock:
//
//	var stock = sqlfence.Table{Name: "stock", Key: "sku", Dialect: sqlfence.PostgreSQL}
//
//	err := stock.Advance(ctx, tx, "85123A", lock.Fence(ctx, "sku:85123A"))
//	// errors.Is(err, lock.ErrStale): roll back, a later holder is at work
//
// # What it guarantees
//
//   - Once a transaction that advanced a row to a fence has committed, no
//     transaction that advances the same row with a lower one commits.
//   - Between Advance and the end of the transaction nobody else can advance
//     the row: what the transaction reads of it then stays true until it commits.
//   - The same fence is accepted again, as a holder may write more than once.
//
// # Where to call it
//
// Compare and write must be one transaction. Otherwise the next holder may come and write between
// the two, and is overwritten. The token is there to prevent just that. Within Advance the
// comparison and the raising are one UPDATE statement for the same reason.
//
// A task that reads in one transaction, thinks, and writes in another calls Advance in both. With
// the write alone, the following loses the first holder's write, and passes every check. The second
// holder reads. The first one writes late, as the row has not seen the second's fence yet. The
// second writes what it computed from the old value. A read that announces the fence makes the late
// write fail.
//
// # What it does not do
//
// Advance protects the row that it advances and nothing else. Other tables written in the same
// transaction are safe only because they commit together. A program that does not call Advance is
// not stopped. Advance creates no row: insert a row that may be missing with fence 0 first. A fence
// does not replace the lock. Without a lock, rivals are refused instead of kept apart.
package sqlfence
