package ledger

import (
	"context"
	"database/sql"
	"errors"
)

var (
	stocks   = newTable("sku:", "stock", "sku", "on_hand", "back_ordered")
	accounts = newTable("account:", "accounts", "customer", "balance")
	orders   = newTable("order:", "orders", "order_no", "lines", "units", "value", "audits", "audited_lines", "verdict")
	users    = newTable("user:", "users", "user_id", "placed")
)

// Stock is what there is of one stock code.
type Stock struct {
	SKU         string `json:"-"`
	OnHand      int64  `json:"on_hand"`      // on the shelf, never below zero
	BackOrdered int64  `json:"back_ordered"` // sold beyond it
}

func (s *Stock) row() row { return row{stocks, s.SKU, []any{&s.OnHand, &s.BackOrdered}} }

// ReadStock reads the stock of a code. A new one begins with opening units. Like
// all the Read methods it announces the context's fence in the row, so that an
// earlier holder cannot write any more.
func (l *Ledger) ReadStock(ctx context.Context, sku string, opening int64) (Stock, error) {
	s := Stock{SKU: sku, OnHand: opening}
	err := l.read(ctx, s.row(), nil)
	return s, err
}

// WriteStock stores s and journals e.
func (l *Ledger) WriteStock(ctx context.Context, s Stock, e Effect) error {
	return l.write(ctx, s.row(), s, e, nil)
}

// An Account is a customer's balance, in ten-thousandths of a pound.
type Account struct {
	Customer string `json:"-"`
	Balance  int64  `json:"balance"`
}

func (a *Account) row() row { return row{accounts, a.Customer, []any{&a.Balance}} }

// ReadAccount reads a balance. A new one is zero.
func (l *Ledger) ReadAccount(ctx context.Context, customer string) (Account, error) {
	a := Account{Customer: customer}
	err := l.read(ctx, a.row(), nil)
	return a, err
}

// WriteAccount stores a and journals e.
func (l *Ledger) WriteAccount(ctx context.Context, a Account, e Effect) error {
	return l.write(ctx, a.row(), a, e, nil)
}

// An Order is what has been allocated to an order, and what its audits found.
type Order struct {
	Number       string `json:"-"`
	Lines        int64  `json:"lines"`
	Units        int64  `json:"units"`
	Value        int64  `json:"value"`
	Audits       int64  `json:"audits"`
	AuditedLines int64  `json:"audited_lines"` // lines at the last audit
	Verdict      string `json:"verdict"`       // of the last audit
}

func (o *Order) row() row {
	return row{orders, o.Number, []any{&o.Lines, &o.Units, &o.Value, &o.Audits, &o.AuditedLines, &o.Verdict}}
}

// ReadOrder reads an order. A new one is empty.
func (l *Ledger) ReadOrder(ctx context.Context, number string) (Order, error) {
	o := Order{Number: number}
	err := l.read(ctx, o.row(), nil)
	return o, err
}

// WriteOrder stores the whole of o and journals e.
func (l *Ledger) WriteOrder(ctx context.Context, o Order, e Effect) error {
	return l.write(ctx, o.row(), o, e, nil)
}

// A User is somebody who places orders.
type User struct {
	ID     string `json:"-"`
	Placed int64  `json:"placed"` // orders so far, which is the last one's number
}

func (u *User) row() row { return row{users, u.ID, []any{&u.Placed}} }

// A Placement is an order that a user has placed.
type Placement struct {
	Number     int64
	Submission string
	Items      int
	Units      int64
	Value      int64
}

// ReadUser reads a user, and the number of the order that the submission has
// made; 0 when it has made none.
func (l *Ledger) ReadUser(ctx context.Context, id, submission string) (u User, number int64, err error) {
	u.ID = id
	err = l.read(ctx, u.row(), func(ctx context.Context, tx *sql.Tx) error {
		err := tx.QueryRowContext(ctx, "SELECT number FROM placements WHERE user_id = $1 AND submission = $2", id, submission).Scan(&number)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	})
	return u, number, err
}

// WritePlacement stores the user and a new order of theirs, and journals e.
func (l *Ledger) WritePlacement(ctx context.Context, u User, p Placement, e Effect) error {
	return l.write(ctx, u.row(), u, e, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO placements (task_id, user_id, number, submission, items, units, value) VALUES ($1, $2, $3, $4, $5, $6, $7)",
			e.TaskID, u.ID, p.Number, p.Submission, p.Items, p.Units, p.Value)
		return err
	})
}
