// Package sqlfence makes a database refuse the writes of a lock's former holder.
//
// A lock that expires cannot stop its holder: a process that was paused for
// longer than the lock lives wakes up believing that it still holds it, and its
// next write lands on top of its successor's. No check by the holder helps, as
// the pause may come right after the check. Only the place that is written to
// can refuse. So each acquisition comes with a fencing token, a number that
// grows from holder to holder ([lock.Fence]), and the row remembers the highest
// it has seen: Martin Kleppmann, "How to do distributed locking", 2016,
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
// Compare and write must be one transaction. Comparing first and writing later
// leaves a gap in which the next holder comes, writes, and is overwritten, which
// is the very accident that the token is there to prevent. Within Advance the
// comparison and the raising are one UPDATE statement for the same reason.
//
// A task that reads in one transaction, thinks, and writes in another calls
// Advance in both. With the write alone, this order of events passes every check
// and loses the first holder's write: the second holder reads, the first one
// writes late (the row has not seen the second's fence yet), the second writes
// what it computed from the old value. Announcing the fence along with the read
// makes the late write fail.
//
// # What it does not do
//
// It protects rows that are written through it and nothing else: other tables
// written in the same transaction are safe only because they commit with it, and
// a program that does not call Advance is not stopped. It creates no row; a row
// that may be missing is inserted with fence 0 first. It does not replace the
// lock: without one, rivals are refused instead of kept apart.
package sqlfence
