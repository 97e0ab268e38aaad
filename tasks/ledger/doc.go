// Package ledger is the database behind the business tasks: stock levels, balances, orders, and a
// journal of every change. The database is a file of SQLite, or a PostgreSQL server; several
// processes share either.
//
// A task does its work in two steps with time to think in between:
//
//	stock := ledger.Stock{SKU: sku, OnHand: opening}
//	err := l.Read(ctx, &stock)            // first transaction
//	stock.OnHand -= 3                     // decide
//	err = l.Write(ctx, &stock, effect)    // second transaction
//
// The write stores the result of the read, as saving an object does. Two tasks that do so for one
// row at the same time lose one of their changes. Only the lock around a task prevents that. Unique
// keys, row versions or "SET on_hand = on_hand - 3" are left out on purpose. Programs with real
// goods want those as well.
//
// The ledger guarantees:
//
//   - A row that was read or written under a higher fencing token ([lock.Fence] of
//     the context) refuses a write, with an error that wraps [lock.ErrStale]. A task
//     without a lock is always refused.
//   - The journal knows each task by its id. A write and its journal entry are
//     one transaction, and a task that is in the journal changes nothing any more:
//     it may run again, whole or in part.
//   - A task of several rows writes all of them or none, each under the fence of its own lock.
//   - A step happens entirely or not at all, whatever error it returns. [ErrUnavailable] marks
//     an error that is no fault of the step, such as a full disk.
//
// Amounts are integers in ten-thousandths of a pound.
package ledger
