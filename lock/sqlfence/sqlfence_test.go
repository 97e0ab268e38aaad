package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/testenv/pgtest"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/sqlfence"
)

// A bundle is a database with a table of which one row, "a", exists.
type bundle struct {
	db    *sql.DB
	table sqlfence.Table
}

// inTx runs fn in a transaction, which commits if fn returns nil.
func (b *bundle) inTx(ctx context.Context, fn func(*sql.Tx) error) error {
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// advance is a transaction that does nothing else.
func (b *bundle) advance(ctx context.Context, key string, fence int64) error {
	return b.inTx(ctx, func(tx *sql.Tx) error { return b.table.Advance(ctx, tx, key, fence) })
}

func (b *bundle) fence(t *testing.T) int64 {
	t.Helper()
	var fence int64
	if err := b.db.QueryRowContext(t.Context(), "SELECT fence FROM items WHERE id = 'a'").Scan(&fence); err != nil {
		t.Fatal(err)
	}
	return fence
}

// backends returns what opens a bundle on each database.
func backends() map[string]func(*testing.T) *bundle {
	return map[string]func(*testing.T) *bundle{
		"sqlite": func(t *testing.T) *bundle {
			t.Helper()
			path := filepath.Join(t.TempDir(), "items.db")
			return open(t, "sqlite", "file:"+path+"?_txlock=immediate&_busy_timeout=30000&_journal_mode=WAL", sqlfence.SQLite)
		},
		"postgresql": func(t *testing.T) *bundle {
			t.Helper()
			return open(t, "pgx", pgtest.DSN(t), sqlfence.PostgreSQL)
		},
	}
}

func open(t *testing.T, driver, dsn string, dialect sqlfence.Dialect) *bundle {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	for _, statement := range []string{
		"CREATE TABLE items (id TEXT PRIMARY KEY, owner TEXT NOT NULL DEFAULT '')",
		"INSERT INTO items (id) VALUES ('a')",
		// As the documentation tells users to do with a table that has rows.
		"ALTER TABLE items ADD COLUMN fence BIGINT NOT NULL DEFAULT 0",
		"CREATE TABLE history (place BIGINT NOT NULL, fence BIGINT NOT NULL)",
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return &bundle{db: db, table: sqlfence.Table{Name: "items", Key: "id", Dialect: dialect}}
}

func TestAdvance(t *testing.T) {
	t.Parallel()
	for name, open := range backends() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t)
			ctx := t.Context()
			const fence = 1_790_000_000_000_000 // microseconds of a clock, beyond 32 bits
			for _, f := range []int64{1, fence, fence} {
				if err := b.advance(ctx, "a", f); err != nil {
					t.Fatalf("fence %d: want it accepted, have %v", f, err)
				}
			}

			err := b.advance(ctx, "a", fence-1)
			if !errors.Is(err, lock.ErrStale) {
				t.Fatalf("older fence: want %v, have %v", lock.ErrStale, err)
			}
			stale, ok := errors.AsType[*store.StaleError](err)
			if want := (&store.StaleError{Place: `items "a"`, Fence: fence - 1, Seen: fence}); !ok || !cmp.Equal(want, stale) {
				t.Errorf("older fence: want %+v, have %+v", want, stale)
			}
			if err := b.advance(ctx, "b", fence); !errors.Is(err, sqlfence.ErrNoRow) {
				t.Errorf("no such row: want %v, have %v", sqlfence.ErrNoRow, err)
			}
			for _, f := range []int64{0, -1} {
				if err := b.advance(ctx, "a", f); !errors.Is(err, lock.ErrNoFence) {
					t.Errorf("fence %d: want %v, have %v", f, lock.ErrNoFence, err)
				}
			}
			if have := b.fence(t); have != fence {
				t.Errorf("after refusals: want fence %d still, have %d", int64(fence), have)
			}
			var rows int
			if err := b.db.QueryRowContext(ctx, "SELECT count(*) FROM items").Scan(&rows); err != nil || rows != 1 {
				t.Errorf("want no row created, have %d rows, %v", rows, err)
			}
		})
	}
}

// TestLateWriteOfAFormerHolder is the accident that the package is for, with a read that announces
// the fence. The former holder wakes up after its successor has read, and before it writes.
func TestLateWriteOfAFormerHolder(t *testing.T) {
	t.Parallel()
	for name, open := range backends() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t)
			ctx := t.Context()
			write := func(owner string, fence int64) error {
				return b.inTx(ctx, func(tx *sql.Tx) error {
					if err := b.table.Advance(ctx, tx, "a", fence); err != nil {
						return err
					}
					_, err := tx.ExecContext(ctx, "UPDATE items SET owner = '"+owner+"' WHERE id = 'a'")
					return err
				})
			}
			if err := b.advance(ctx, "a", 1); err != nil { // the first reads, and is paused
				t.Fatal(err)
			}
			if err := b.advance(ctx, "a", 2); err != nil { // the second reads
				t.Fatal(err)
			}
			if err := write("first", 1); !errors.Is(err, lock.ErrStale) {
				t.Errorf("first, late: want %v, have %v", lock.ErrStale, err)
			}
			if err := write("second", 2); err != nil {
				t.Errorf("second: want it accepted, have %v", err)
			}
			var owner string
			if err := b.db.QueryRowContext(ctx, "SELECT owner FROM items").Scan(&owner); err != nil || owner != "second" {
				t.Errorf("want the second's write alone, have %q, %v", owner, err)
			}
		})
	}
}

// TestRivals lets many transactions with different fences loose on one row at once. Transactions
// commit in the order of their fences, whatever the order of their starts. Each has the row from
// Advance to the end.
func TestRivals(t *testing.T) {
	t.Parallel()
	for name, open := range backends() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t)
			ctx := t.Context()
			const rivals = 40
			b.db.SetMaxOpenConns(8)
			var wg sync.WaitGroup
			for i := range rivals {
				fence := int64(i*7%rivals + 1) // each once, in no order
				wg.Go(func() {
					err := b.inTx(ctx, func(tx *sql.Tx) error {
						if err := b.table.Advance(ctx, tx, "a", fence); err != nil {
							return err
						}
						_, err := tx.ExecContext(ctx, "INSERT INTO history SELECT (SELECT count(*) FROM history), fence FROM items")
						return err
					})
					if err != nil && !errors.Is(err, lock.ErrStale) {
						t.Errorf("fence %d: %v", fence, err)
					}
				})
			}
			wg.Wait()
			rows, err := b.db.QueryContext(ctx, "SELECT fence FROM history ORDER BY place")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = rows.Close() }()
			var last int64
			for rows.Next() {
				var fence int64
				if err := rows.Scan(&fence); err != nil {
					t.Fatal(err)
				}
				if fence <= last {
					t.Errorf("want rising fences, have %d after %d", fence, last)
				}
				last = fence
			}
			if err := rows.Err(); err != nil {
				t.Fatal(err)
			}
			if last != rivals || b.fence(t) != rivals {
				t.Errorf("want the highest fence %d last, have %d, in the row %d", rivals, last, b.fence(t))
			}
		})
	}
}

func TestBadTable(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		table sqlfence.Table
		want  string
	}{
		{"no name", sqlfence.Table{Key: "id"}, `name: want a plain identifier (letters, digits, _), have ""`},
		{"no key", sqlfence.Table{Name: "items"}, `key: want a plain identifier`},
		{"injection", sqlfence.Table{Name: "items; DROP TABLE items", Key: "id"}, `have "items; DROP TABLE items"`},
		{"quoted", sqlfence.Table{Name: "items", Key: `"id"`}, `key: want`},
		{"dotted", sqlfence.Table{Name: "public.items", Key: "id"}, `name: want`},
		{"digit first", sqlfence.Table{Name: "items", Key: "id", Fence: "1fence"}, `fence: want`},
		{"not ASCII", sqlfence.Table{Name: "ítems", Key: "id"}, `name: want`},
		{"too long", sqlfence.Table{Name: strings.Repeat("i", 64), Key: "id"}, `name: want`},
		{"dialect", sqlfence.Table{Name: "items", Key: "id", Dialect: 7}, `dialect: want SQLite or PostgreSQL, have 7`},
		{"key not unique", sqlfence.Table{Name: "items", Key: "owner"}, `column owner of items is not unique: 2 rows of ""`},
	}
	b := open(t, "sqlite", filepath.Join(t.TempDir(), "items.db"), sqlfence.SQLite)
	b.db.SetMaxOpenConns(1)
	if _, err := b.db.ExecContext(t.Context(), "INSERT INTO items (id) VALUES ('b')"); err != nil {
		t.Fatal(err)
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			bad := bundle{db: b.db, table: test.table}
			err := bad.advance(t.Context(), "", 1)
			if !errors.Is(err, sqlfence.ErrTable) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("want %v ... %s, have %v", sqlfence.ErrTable, test.want, err)
			}
		})
	}
}
