// Package tasks holds the tasks of the demo shop. They audit, allocate, place and fulfil orders,
// deduct from stock, debit accounts, and transfer between them. Each is a plain struct that names its
// resource, or all that it needs, and has a handler that works on a [ledger.Ledger].
//
//	kind                resource                          task
//	order:audit         order:<number>                    AuditOrder
//	warehouse:allocate  order:<number>                    AllocateLine
//	stock:deduct        sku:<CODE>                        DeductStock
//	balance:debit       account:<customer>                DebitBalance
//	order:place         user:<id>                         PlaceOrder
//	balance:transfer    account:<from> and account:<to>   TransferBalance
//	order:fulfil        order:<number> and sku:<CODE>...  FulfilOrder
//
// A handler reads, decides and writes in separate transactions. The lock keeps
// other handlers of the resource away meanwhile. A task that runs twice has one
// effect, since the ledger's journal knows its id. A holder that has lost a lock
// is refused by its fencing token.
//
// Identifiers count without the blanks around them, and stock codes without their
// case.
package tasks
