//go:build unix

package main

import (
	"context"
	"database/sql"
	"errors"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/sqlfence"
)

// opening is how many pieces there are before the first sale.
const opening = 10

// Sell is a task: it takes pieces from the stock.
type Sell struct {
	SKU    string `json:"sku"`
	Pieces int    `json:"pieces"`
}

// Kind is what the queue calls it.
func (Sell) Kind() string { return "stock:sell" }

// Resource is what two sales must not share.
func (s Sell) Resource() string { return "sku:" + s.SKU }

// stock says where the fences are.
var stock = sqlfence.Table{Name: "stock", Key: []string{"sku"}, Dialect: sqlfence.SQLite}

// A shop is the database. Unfenced, its transactions check no fence.
type shop struct {
	db       *sql.DB
	unfenced bool
}

func openShop(file string, unfenced bool) (*shop, error) {
	db, err := sql.Open("sqlite", "file:"+file+"?_txlock=immediate&_busy_timeout=10000")
	return &shop{db: db, unfenced: unfenced}, err
}

// create makes the table, and a row for sku.
func (s *shop) create(ctx context.Context, sku string) error {
	_, err := s.db.ExecContext(ctx, `CREATE TABLE stock (
		sku TEXT PRIMARY KEY, on_hand BIGINT NOT NULL, fence BIGINT NOT NULL DEFAULT 0)`)
	if err == nil {
		_, err = s.db.ExecContext(ctx, "INSERT INTO stock (sku, on_hand) VALUES (?, ?)", sku, opening)
	}
	return err
}

// onHand returns how many pieces there are, to somebody who writes nothing.
func (s *shop) onHand(ctx context.Context, sku string) (pieces int, err error) {
	err = s.db.QueryRowContext(ctx, "SELECT on_hand FROM stock WHERE sku = ?", sku).Scan(&pieces)
	return pieces, err
}

// read returns how many pieces there are. It announces the fence of the task, so that no earlier
// holder can write from now on.
func (s *shop) read(ctx context.Context, t Sell) (onHand int, err error) {
	err = s.inTx(ctx, t, func(tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, "SELECT on_hand FROM stock WHERE sku = ?", t.SKU).Scan(&onHand)
	})
	return onHand, err
}

// write has the stock be onHand pieces.
func (s *shop) write(ctx context.Context, t Sell, onHand int) error {
	return s.inTx(ctx, t, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE stock SET on_hand = ? WHERE sku = ?", onHand, t.SKU)
		return err
	})
}

// inTx runs fn in a transaction that begins with the check of the fence.
func (s *shop) inTx(ctx context.Context, t Sell, fn func(*sql.Tx) error) (err error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() {
		if end := tx.Rollback(); !errors.Is(end, sql.ErrTxDone) {
			err = errors.Join(err, end)
		}
	}()
	if !s.unfenced {
		if err := stock.Advance(ctx, tx, lock.Fence(ctx, t.Resource()), t.SKU); err != nil {
			return err
		}
	}
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}
