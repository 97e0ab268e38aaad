package sqlfence_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/sqlfence"
)

// now is a fence as a lock gives it out: microseconds of a clock, beyond 32 bits.
const now = 1_790_000_000_000_000

func TestAdvance(t *testing.T) {
	t.Parallel()
	each(t, backends(), func(t *testing.T, b *bundle, _ backend) {
		t.Helper()
		ctx := t.Context()
		for _, f := range []int64{1, now, now} {
			if err := b.advance(ctx, f, "a"); err != nil {
				t.Fatalf("fence %d: want it accepted, have %v", f, err)
			}
		}
		if err := b.inTx(ctx, func(tx transaction) error {
			return errors.Join(tx.advance(b.table, now, "a"), tx.advance(b.table, now, "a"))
		}); err != nil {
			t.Errorf("the same fence twice in one transaction: want it accepted, have %v", err)
		}

		err := b.advance(ctx, now-1, "a")
		if !errors.Is(err, lock.ErrStale) {
			t.Fatalf("older fence: want %v, have %v", lock.ErrStale, err)
		}
		stale, ok := errors.AsType[*store.StaleError](err)
		if want := (&store.StaleError{Place: `items "a"`, Fence: now - 1, Seen: now}); !ok || !cmp.Equal(want, stale) {
			t.Errorf("older fence: want %+v, have %+v", want, stale)
		}
		if err := b.advance(ctx, now, "b"); !errors.Is(err, sqlfence.ErrNoRow) || !strings.Contains(err.Error(), `items "b"`) {
			t.Errorf("no such row: want %v with its name, have %v", sqlfence.ErrNoRow, err)
		}
		for _, f := range []int64{0, -1} {
			if err := b.advance(ctx, f, "a"); !errors.Is(err, lock.ErrNoFence) {
				t.Errorf("fence %d: want %v, have %v", f, lock.ErrNoFence, err)
			}
		}
		if have := b.fence(t); have != now {
			t.Errorf("after refusals: want fence %d still, have %d", int64(now), have)
		}
		if rows := b.number(t, "SELECT count(*) FROM items"); rows != 1 {
			t.Errorf("want no row created, have %d rows", rows)
		}
	})
}

func TestRollbackLeavesNothing(t *testing.T) {
	t.Parallel()
	each(t, backends(), func(t *testing.T, b *bundle, _ backend) {
		t.Helper()
		given := errors.New("the task has failed")
		err := b.inTx(t.Context(), func(tx transaction) error {
			return errors.Join(tx.advance(b.table, 5, "a"), given)
		})
		if err == nil || err.Error() != given.Error() {
			t.Errorf("want %v alone, have %v", given, err)
		}
		if have := b.fence(t); have != 0 {
			t.Errorf("want fence 0 still, have %d", have)
		}
		if err := b.advance(t.Context(), 4, "a"); err != nil {
			t.Errorf("lower than the one rolled back: want it accepted, have %v", err)
		}
	})
}

// TestKeysAndNames has a composite key of several types, in a schema, and names that need quotes.
func TestKeysAndNames(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{"", "Order "} {
		t.Run("schema "+schema, func(t *testing.T) {
			t.Parallel()
			each(t, backends(), func(t *testing.T, b *bundle, _ backend) {
				t.Helper()
				ctx := t.Context()
				table := sqlfence.Table{
					Name: "Group; DROP TABLE items", Key: []string{"select", "Warehouse", "da-y", "?1 $1 ?"}, Fence: "Fence Token", Dialect: b.dialect,
				}
				if schema != "" {
					table.Name = b.createSchema(t, schema) + "." + table.Name
				}
				bytes := map[sqlfence.Dialect]string{sqlfence.SQLite: "BLOB", sqlfence.PostgreSQL: "BYTEA", sqlfence.MySQL: "VARBINARY(16)"}[b.dialect]
				moment := map[sqlfence.Dialect]string{sqlfence.SQLite: "TEXT", sqlfence.PostgreSQL: "TIMESTAMP", sqlfence.MySQL: "DATETIME"}[b.dialect]
				name := b.quoted(`"` + strings.ReplaceAll(table.Name, ".", `"."`) + `"`)
				b.exec(t, b.quoted(`CREATE TABLE `+name+` ("select" `+bytes+` NOT NULL, "Warehouse" BIGINT NOT NULL, "da-y" `+moment+` NOT NULL,
					"?1 $1 ?" BOOLEAN NOT NULL, "Fence Token" BIGINT NOT NULL DEFAULT 0, PRIMARY KEY ("select", "Warehouse", "da-y", "?1 $1 ?"))`))

				day := time.Date(2026, 11, 24, 10, 0, 0, 0, time.UTC)
				key := []any{[]byte{0xff, 0x00, '\''}, int64(3), day, true}
				others := [][]any{
					{[]byte{0xff, 0x00}, int64(3), day, true},
					{key[0], int64(4), day, true},
					{key[0], int64(3), day.Add(time.Hour), true},
					{key[0], int64(3), day, false},
				}
				insert := b.quoted(`INSERT INTO ` + name + ` ("select", "Warehouse", "da-y", "?1 $1 ?") VALUES (` + b.placeholders(len(key)) + `)`)
				b.exec(t, insert, key...)
				for _, other := range others[1:] {
					b.exec(t, insert, other...)
				}

				for _, f := range []int64{1, 2, 2} {
					if err := b.advanceIn(ctx, table, f, key...); err != nil {
						t.Fatalf("fence %d: want it accepted, have %v", f, err)
					}
				}
				err := b.advanceIn(ctx, table, 1, key...)
				place := table.Name + ` (0xff0027, 3, 2026-11-24 10:00:00 +0000 UTC, true)`
				if want := (&store.StaleError{Place: place, Fence: 1, Seen: 2}); err == nil || err.Error() != want.Error() {
					t.Errorf("older fence: want %v, have %v", want, err)
				}
				if err := b.advanceIn(ctx, table, 2, others[0]...); !errors.Is(err, sqlfence.ErrNoRow) {
					t.Errorf("no such row: want %v, have %v", sqlfence.ErrNoRow, err)
				}
				if n := b.number(t, b.quoted(`SELECT count(*) FROM `+name+` WHERE "Fence Token" = 0`)); n != 3 {
					t.Errorf("want the 3 rows of other keys as they were, have %d of them", n)
				}
				if n := b.number(t, "SELECT count(*) FROM items"); n != 1 {
					t.Errorf("want the table items as it was, have %d rows", n)
				}
			})
		})
	}
}

// createSchema makes a schema of a name that needs quotes, and returns the name.
func (b *bundle) createSchema(t *testing.T, name string) string {
	t.Helper()
	switch b.dialect {
	case sqlfence.SQLite:
		return "main" // others come and go with a connection
	case sqlfence.MySQL: // the databases of a server are its schemas
		var own string
		must(t, b.db.QueryRowContext(t.Context(), "SELECT database()").Scan(&own))
		name += own
	default:
	}
	b.exec(t, b.quoted(`CREATE SCHEMA "`+name+`"`))
	return name
}

// TestLateWriteOfAFormerHolder is the accident that the package is for, with a read that announces
// the fence. The former holder wakes up after its successor has read, and before it writes.
func TestLateWriteOfAFormerHolder(t *testing.T) {
	t.Parallel()
	each(t, backends(), func(t *testing.T, b *bundle, _ backend) {
		t.Helper()
		ctx := t.Context()
		write := func(owner string, fence int64) error {
			return b.inTx(ctx, func(tx transaction) error {
				if err := tx.advance(b.table, fence, "a"); err != nil {
					return err
				}
				return tx.exec("UPDATE items SET owner = '" + owner + "' WHERE id = 'a'")
			})
		}
		if err := b.advance(ctx, 1, "a"); err != nil { // the first reads, and is paused
			t.Fatal(err)
		}
		if err := b.advance(ctx, 2, "a"); err != nil { // the second reads
			t.Fatal(err)
		}
		if err := write("first", 1); !errors.Is(err, lock.ErrStale) {
			t.Errorf("first, late: want %v, have %v", lock.ErrStale, err)
		}
		if err := write("second", 2); err != nil {
			t.Errorf("second: want it accepted, have %v", err)
		}
		if n := b.number(t, "SELECT count(*) FROM items WHERE owner = 'second'"); n != 1 {
			t.Error("want the second's write alone")
		}
	})
}

// TestRivals lets many transactions with different fences loose on one row at once. Transactions
// commit in the order of their fences, whatever the order of their starts. Each has the row from
// Advance to the end.
func TestRivals(t *testing.T) {
	t.Parallel()
	each(t, append(backends(), levels()...), func(t *testing.T, b *bundle, on backend) {
		t.Helper()
		ctx := t.Context()
		const rivals = 40
		b.db.SetMaxOpenConns(8)
		var wg sync.WaitGroup
		for i := range rivals {
			fence := int64(i*7%rivals + 1) // each once, in no order
			wg.Go(func() {
				try := func() error {
					return b.inTx(ctx, func(tx transaction) error {
						if err := tx.advance(b.table, fence, "a"); err != nil {
							return err
						}
						return tx.exec("INSERT INTO history (place, fence) SELECT (SELECT count(*) FROM history), fence FROM items")
					})
				}
				err := try()
				for on.conflicts && databaseError(err) {
					err = try() // as users do
				}
				if err != nil && !errors.Is(err, lock.ErrStale) {
					t.Errorf("fence %d: %v", fence, err)
				}
			})
		}
		wg.Wait()
		rows, err := b.db.QueryContext(ctx, "SELECT fence FROM history ORDER BY place")
		must(t, err)
		defer func() { _ = rows.Close() }()
		var last int64
		for rows.Next() {
			var fence int64
			must(t, rows.Scan(&fence))
			if fence <= last {
				t.Errorf("want rising fences, have %d after %d", fence, last)
			}
			last = fence
		}
		must(t, rows.Err())
		if have := b.fence(t); last != rivals || have != rivals {
			t.Errorf("want the highest fence %d last, have %d, in the row %d", rivals, last, have)
		}
	})
}
