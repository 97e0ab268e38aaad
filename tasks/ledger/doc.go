// Package ledger is the database behind the business tasks: stock levels,
// balances, orders, and a journal of every change. It is a file of SQLite, or a
// PostgreSQL server; several processes share either.
//
// A task does its work in two steps with time to think in between:
//
//	stock, err := l.ReadStock(ctx, sku, opening)   // first transaction
//	stock.OnHand -= 3                              // decide
//	err = l.WriteStock(ctx, stock, effect)         // second transaction
//
// The write stores what was computed from the read, as saving an object does;
// two tasks that do so for one row at the same time lose one of their changes.
// That is on purpose: it is the lock around the task that has to prevent it, and
// there are no unique keys, row versions or "SET on_hand = on_hand - 3" here that
// would do so in its place. Programs with real goods want those as well.
//
// What the ledger does guarantee:
//
//   - A write is refused when its row has been read or written under a higher
//     fencing token ([lock.Fence] of the context), with a [*lock.StaleError].
//     A task that runs under no lock is refused altogether.
//   - The journal knows each task by its id. A write and its journal entry are
//     one transaction, and a task that is in the journal already changes nothing:
//     running it again, whole or in part, is harmless.
//   - A step has happened entirely or not at all, whatever error it returns. One that no step
//     could have avoided, such as a full disk, wraps [ErrUnavailable].
//
// Amounts are integers in ten-thousandths of a pound.
package ledger
