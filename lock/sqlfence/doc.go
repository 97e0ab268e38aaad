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
//	var stock = sqlfence.Table{Name: "stock", Key: []string{"sku"}, Dialect: sqlfence.PostgreSQL}
//
//	err := stock.Advance(ctx, tx, lock.Fence(ctx, "sku:85123A"), "85123A")
//	// errors.Is(err, lock.ErrStale): roll back, a later holder is at work
//
// [AdvancePgx] does the same in a transaction of pgx.
//
// # What it guarantees
//
//   - Once a transaction that advanced a row to a fence has committed, no
//     transaction that advances the same row with a lower one commits.
//   - Between Advance and the end of the transaction nobody else can advance
//     the row: what the transaction reads of it then stays true until it commits.
//   - The same fence is accepted again, as a holder may write more than once.
//
// All this holds at each isolation level of SQLite, PostgreSQL, MySQL and MariaDB. Tests run on
// SQLite, PostgreSQL 15 and MariaDB 10.11; MySQL itself has not been tried. If the row has changed
// since the transaction began, some levels refuse to advance it, even to a higher fence. They are
// REPEATABLE READ and SERIALIZABLE in PostgreSQL, and REPEATABLE READ in MariaDB with
// innodb_snapshot_isolation. The error is then the database's own, and the transaction may be tried
// again. The same holds for a deferred transaction of SQLite, so begin by BEGIN IMMEDIATE there.
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
//
// Advance relies on the table as [Table] describes it. It finds a key that is not unique when the key
// fits several rows at once, and not sooner. A fence column of a smaller type than BIGINT breaks the
// guarantee in a MySQL that cuts numbers off (without strict mode). So does a table of MySQL without
// transactions (MyISAM). A database that forgets a commit, as after a failover to a replica that was
// behind, forgets its fence as well. MySQL compares a number with a text as numbers: pass keys of their columns'
// types, or another row may be advanced.
package sqlfence
