package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite"

	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/lock/sqlfence"
)

// A holder that was paused for too long tries to write after its successor.
func ExampleTable_Advance() {
	folder, err := os.MkdirTemp("", "sqlfence")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(folder)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(folder, "shop.db")+"?_txlock=immediate")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	_, err = db.ExecContext(context.Background(), `
		CREATE TABLE stock (sku TEXT PRIMARY KEY, on_hand BIGINT NOT NULL);
		INSERT INTO stock VALUES ('85123A', 10);
		ALTER TABLE stock ADD COLUMN fence BIGINT NOT NULL DEFAULT 0`)
	if err != nil {
		fmt.Println(err)
		return
	}

	stock := sqlfence.Table{Name: "stock", Key: []string{"sku"}, Dialect: sqlfence.SQLite}
	write := func(ctx context.Context, onHand int) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if err := stock.Advance(ctx, tx, lock.Fence(ctx, "sku:85123A"), "85123A"); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "UPDATE stock SET on_hand = ? WHERE sku = '85123A'", onHand); err != nil {
			return err
		}
		return tx.Commit()
	}

	// Under a lock the context carries the fence; here we hand it out.
	paused := locktest.WithFence(context.Background(), "sku:85123A", 33)
	successor := locktest.WithFence(context.Background(), "sku:85123A", 34)
	fmt.Println(write(successor, 7))
	err = write(paused, 9)
	fmt.Println(err)
	fmt.Println(errors.Is(err, lock.ErrStale))
	// Output:
	// <nil>
	// lock: stock "85123A" has seen fence 34, refused the older 33
	// true
}
