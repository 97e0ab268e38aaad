package ledger

import (
	"context"
	"database/sql"
	"errors"
)

var (
	stocks   = newTable("sku:", "stock", "sku", "on_hand", "back_ordered")
	accounts = newTable("account:", "accounts", "customer", "balance", "declined")
	orders   = newTable("order:", "orders", "order_no", "lines", "units", "value", "audits", "audited_lines", "verdict", "fulfilment")
	users    = newTable("user:", "users", "user_id", "placed")
)

// A Row is what one row holds. Until [Ledger.Read] the row has the values of a new one.
type Row interface{ row() row }

// Stock is what there is of one stock code.
type Stock struct {
	SKU         string `json:"-"`
	OnHand      int64  `json:"on_hand"`      // on the shelf, never below zero
	BackOrdered int64  `json:"back_ordered"` // sold beyond it
}

func (s *Stock) row() row { return row{stocks, s.SKU, []any{&s.OnHand, &s.BackOrdered}} }

// An Account is a customer's balance, in ten-thousandths of a pound.
type Account struct {
	Customer string `json:"-"`
	Balance  int64  `json:"balance"`
	Declined int64  `json:"declined"` // transfers from it for which it was too small
}

func (a *Account) row() row { return row{accounts, a.Customer, []any{&a.Balance, &a.Declined}} }

// An Order is what has been allocated to an order, and what its audits found.
type Order struct {
	Number       string `json:"-"`
	Lines        int64  `json:"lines"`
	Units        int64  `json:"units"`
	Value        int64  `json:"value"`
	Audits       int64  `json:"audits"`
	AuditedLines int64  `json:"audited_lines"` // lines at the last audit
	Verdict      string `json:"verdict"`       // of the last audit
	Fulfilment   string `json:"fulfilment"`    // of the last attempt to fulfil it
}

func (o *Order) row() row {
	return row{orders, o.Number, []any{&o.Lines, &o.Units, &o.Value, &o.Audits, &o.AuditedLines, &o.Verdict, &o.Fulfilment}}
}

// A User is somebody who places orders.
type User struct {
	ID     string `json:"-"`
	Placed int64  `json:"placed"` // orders so far, which is the last one's number
}

func (u *User) row() row { return row{users, u.ID, []any{&u.Placed}} }

// Read is the first step of a task: it reads rows. Read makes a missing row of the values that it
// has here. Read also writes the context's fence into each row, so that an earlier holder of its lock
// cannot write any more.
func (l *Ledger) Read(ctx context.Context, rows ...Row) error { return l.read(ctx, rows, nil) }

// Write is the second step: it stores the whole of r and journals e.
func (l *Ledger) Write(ctx context.Context, r Row, e Effect) error {
	return l.WriteAll(ctx, Change{r, e})
}

// WriteAll is the second step of a task of several rows. It makes all changes, which are of one task, or none.
func (l *Ledger) WriteAll(ctx context.Context, changes ...Change) error {
	return l.write(ctx, changes, nil)
}

// A Placement is an order that a user has placed.
type Placement struct {
	Number     int64
	Submission string
	Items      int
	Units      int64
	Value      int64
}

// ReadUser also returns the number of the order that the submission has made; 0 when it has made none.
func (l *Ledger) ReadUser(ctx context.Context, u *User, submission string) (number int64, err error) {
	err = l.read(ctx, []Row{u}, func(ctx context.Context, tx *sql.Tx) error {
		err := tx.QueryRowContext(ctx, "SELECT number FROM placements WHERE user_id = $1 AND submission = $2", u.ID, submission).Scan(&number)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	})
	return number, err
}

// WritePlacement also stores a new order of the user.
func (l *Ledger) WritePlacement(ctx context.Context, u *User, p Placement, e Effect) error {
	return l.write(ctx, []Change{{u, e}}, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO placements (task_id, user_id, number, submission, items, units, value) VALUES ($1, $2, $3, $4, $5, $6, $7)",
			e.TaskID, u.ID, p.Number, p.Submission, p.Items, p.Units, p.Value)
		return err
	})
}
