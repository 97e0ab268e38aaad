// Package tasks holds the business tasks that Siding is shown and measured with:
// audits and allocations of orders, deductions from stock, debits of accounts,
// and placing orders. Each is a plain struct that names the resource it must not
// share, and each has a handler that works on a [ledger.Ledger].
//
//	kind                resource            task
//	order:audit         order:<number>      AuditOrder
//	warehouse:allocate  order:<number>      AllocateLine
//	stock:deduct        sku:<CODE>          DeductStock
//	balance:debit       account:<customer>  DebitBalance
//	order:place         user:<id>           PlaceOrder
//
// A handler reads, decides, and writes what it decided, in separate transactions:
// it relies on the lock for being alone. It relies on nothing else: run twice it
// has one effect, since the ledger's journal knows the task's id, and a holder
// whose lock has gone to somebody else is refused by its fencing token.
//
// Identifiers count without the blanks around them, stock codes also without
// their case.
package tasks
