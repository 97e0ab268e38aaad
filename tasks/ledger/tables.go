package ledger

import (
	"context"
	"database/sql"

	"github.com/sidingq/siding/lock/sqlfence"
)

// A table is one whose rows tasks read and later write back: its fence and its
// statements, whose first parameter is the row's key. The resource that guards a row is the
// row's key behind a prefix.
type table struct {
	resource             string
	fence                sqlfence.Table
	insert, read, update *sql.Stmt
}

// tables holds all statements of the steps. They are prepared once, as parsing
// them costs SQLite more than running them.
type tables struct {
	stock, accounts, orders, users table
	placed, place                  *sql.Stmt // find a submission's order, store an order
	journaled, journal             *sql.Stmt // find a task's entry, store an entry
}

// A preparer prepares statements until one fails.
type preparer struct {
	db      *sql.DB
	dialect sqlfence.Dialect
	err     error
}

func (p *preparer) tables(ctx context.Context) tables {
	return tables{
		stock: p.table(ctx, "sku:", "stock", "sku", "(sku, on_hand) VALUES (?1, ?2)",
			"on_hand, back_ordered", "on_hand = ?2, back_ordered = ?3"),
		accounts: p.table(ctx, "account:", "accounts", "customer", "(customer) VALUES (?1)",
			"balance", "balance = ?2"),
		orders: p.table(ctx, "order:", "orders", "order_no", "(order_no) VALUES (?1)",
			"lines, units, value, audits, audited_lines, verdict",
			"lines = ?2, units = ?3, value = ?4, audits = ?5, audited_lines = ?6, verdict = ?7"),
		users: p.table(ctx, "user:", "users", "user_id", "(user_id) VALUES (?1)",
			"placed", "placed = ?2"),
		placed: p.prepare(ctx, "SELECT number FROM placements WHERE user_id = ?1 AND submission = ?2"),
		place: p.prepare(ctx, "INSERT INTO placements (task_id, user_id, number, submission, items, units, value)"+
			" VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"),
		journaled: p.prepare(ctx, "SELECT kind, subject, order_no, line, sku, quantity, amount FROM journal WHERE task_id = ?1"),
		journal: p.prepare(ctx, "INSERT INTO journal"+
			" (task_id, kind, subject, fence, order_no, line, sku, quantity, amount, row_after, recorded_ms)"+
			" VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) ON CONFLICT (task_id) DO NOTHING"),
	}
}

func (p *preparer) table(ctx context.Context, resource, name, key, insert, read, update string) table {
	return table{
		resource: resource,
		fence:    sqlfence.Table{Name: name, Key: key, Dialect: p.dialect},
		insert:   p.prepare(ctx, "INSERT INTO "+name+" "+insert+" ON CONFLICT ("+key+") DO NOTHING"),
		read:     p.prepare(ctx, "SELECT "+read+" FROM "+name+" WHERE "+key+" = ?1"),
		update:   p.prepare(ctx, "UPDATE "+name+" SET "+update+" WHERE "+key+" = ?1"),
	}
}

func (p *preparer) prepare(ctx context.Context, statement string) *sql.Stmt {
	if p.err != nil {
		return nil
	}
	var s *sql.Stmt
	s, p.err = p.db.PrepareContext(ctx, rebind(p.dialect, statement))
	return s
}
