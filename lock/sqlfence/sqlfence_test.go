package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/pgtest"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/lock/sqlfence"
)

// now is a fence as a lock gives it out: microseconds of a clock, beyond 32 bits.
const now = 1_790_000_000_000_000

func TestAdvance(t *testing.T) {
	t.Parallel()
	each(t, backends(), func(b *bundle, _ backend) {
		ctx := b.Context()
		for _, f := range []int64{1, now, now} {
			expect.OK(b, b.advance(ctx, f, "a"))
		}
		if err := b.inTx(ctx, func(tx *sql.Tx) error {
			return errors.Join(b.table.Advance(ctx, tx, now, "a"), b.table.Advance(ctx, tx, now, "a"))
		}); err != nil {
			b.Errorf("the same fence twice in one transaction: want it accepted, have %v", err)
		}

		err := b.advance(ctx, now-1, "a")
		expect.Need(b, errors.Is(err, lock.ErrStale), "older fence: want %v, have %v", lock.ErrStale, err)
		stale, ok := errors.AsType[*store.StaleError](err)
		want := (&store.StaleError{Place: `items "a"`, Fence: now - 1, Seen: now})
		expect.That(b, ok && cmp.Equal(want, stale), "older fence: want %+v, have %+v", want, stale)
		if err := b.advance(ctx, now, "b"); !errors.Is(err, sqlfence.ErrNoRow) || !strings.Contains(err.Error(), `items "b"`) {
			b.Errorf("no such row: want %v with its name, have %v", sqlfence.ErrNoRow, err)
		}
		for _, f := range []int64{0, -1} {
			expect.Is(b, fmt.Sprintf("fence %d", f), b.advance(ctx, f, "a"), lock.ErrNoFence)
		}
		expect.Equal(b, "fence after refusals", b.fence(), now)
		expect.Equal(b, "rows", b.number("SELECT count(*) FROM items"), 1)
	})
}

// TestLateWrite is the accident against which fences are. A holder stands still just before it writes, for longer than its lock lives.
// Another one takes the lock and writes. The first goes on where it was, and writes before any check. With the fence the write is
// refused. Without, it lands on the other's; that half of the test shows that the other half is about the accident.
func TestLateWrite(t *testing.T) {
	t.Parallel()
	each(t, backends(), func(b *bundle, _ backend) {
		for _, fenced := range []bool{true, false} {
			locker := expect.Value(lock.New(locktest.NewMemory(), lock.Config{}))(b)
			b.Cleanup(locker.Close)
			write := func(ctx context.Context, owner string) error {
				return b.inTx(ctx, func(tx *sql.Tx) error {
					if fenced {
						if err := b.table.Advance(ctx, tx, lock.Fence(ctx, "a"), "a"); err != nil {
							return err
						}
					}
					return expect.Err(tx.ExecContext(ctx, "UPDATE items SET owner = '"+owner+"' WHERE id = 'a'"))
				})
			}
			first := expect.Value(locker.Acquire(b.Context(), "a", &lock.Options{TTL: 100 * time.Millisecond, NoRenew: true}))(b)
			work := first.Context(b.Context())
			expect.OK(b, locker.Do(b.Context(), "a", &lock.Options{Wait: lock.Forever}, func(ctx context.Context) error { return write(ctx, "second") }))
			err, owner := write(context.WithoutCancel(work), "first"), "first"
			if fenced {
				owner = "second"
			}
			expect.That(b, errors.Is(err, lock.ErrStale) == fenced && (fenced || err == nil), "want the late write refused (%t), have %v", fenced, err)
			expect.Equal(b, "rows of the "+owner, b.number("SELECT count(*) FROM items WHERE owner = '"+owner+"'"), 1)
		}
	})
}

// TestKeysAndNames has a composite key of several types, in a schema, and names that need quotes.
func TestKeysAndNames(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{"", "Order "} {
		t.Run("schema "+schema, func(t *testing.T) {
			t.Parallel()
			each(t, backends(), func(b *bundle, _ backend) {
				ctx := b.Context()
				table := sqlfence.Table{
					Name: "Group; DROP TABLE items", Key: []string{"select", "Warehouse", "da-y", "?1 $1 ?"}, Fence: "Fence Token", Dialect: b.dialect,
				}
				if schema != "" {
					table.Name = b.createSchema(schema) + "." + table.Name
				}
				bytes := map[sqlfence.Dialect]string{sqlfence.SQLite: "BLOB", sqlfence.PostgreSQL: "BYTEA", sqlfence.MySQL: "VARBINARY(16)"}[b.dialect]
				moment := map[sqlfence.Dialect]string{sqlfence.SQLite: "TEXT", sqlfence.PostgreSQL: "TIMESTAMP", sqlfence.MySQL: "DATETIME"}[b.dialect]
				name := b.quoted(`"` + strings.ReplaceAll(table.Name, ".", `"."`) + `"`)
				b.exec(b.quoted(`CREATE TABLE ` + name + ` ("select" ` + bytes + ` NOT NULL, "Warehouse" BIGINT NOT NULL, "da-y" ` + moment + ` NOT NULL,
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
				b.exec(insert, key...)
				for _, other := range others[1:] {
					b.exec(insert, other...)
				}

				for _, f := range []int64{1, 2, 2} {
					expect.OK(b, b.advanceIn(ctx, table, f, key...))
				}
				err := b.advanceIn(ctx, table, 1, key...)
				place := table.Name + ` (0xff0027, 3, 2026-11-24 10:00:00 +0000 UTC, true)`
				want := (&store.StaleError{Place: place, Fence: 1, Seen: 2})
				expect.That(b, err != nil && err.Error() == want.Error(), "older fence: want %v, have %v", want, err)
				expect.Is(b, "no such row", b.advanceIn(ctx, table, 2, others[0]...), sqlfence.ErrNoRow)
				expect.Equal(b, "rows of other keys as they were", b.number(b.quoted(`SELECT count(*) FROM `+name+` WHERE "Fence Token" = 0`)), 3)
				expect.Equal(b, "rows of the table items", b.number("SELECT count(*) FROM items"), 1)
			})
		})
	}
}

// createSchema makes a schema of a name that needs quotes, and returns the name.
func (b *bundle) createSchema(name string) string {
	b.Helper()
	switch b.dialect {
	case sqlfence.SQLite:
		return "main" // others come and go with a connection
	case sqlfence.MySQL: // the databases of a server are its schemas
		var own string
		expect.OK(b, b.db.QueryRowContext(b.Context(), "SELECT database()").Scan(&own))
		name += own
	default:
	}
	b.exec(b.quoted(`CREATE SCHEMA "` + name + `"`))
	return name
}

// TestRivals lets many transactions with different fences loose on one row at once. Transactions
// commit in the order of their fences, whatever the order of their starts. Each has the row from
// Advance to the end.
func TestRivals(t *testing.T) {
	t.Parallel()
	each(t, append(backends(), levels()...), func(b *bundle, on backend) {
		ctx := b.Context()
		const rivals = 40
		b.db.SetMaxOpenConns(8)
		var wg sync.WaitGroup
		for i := range rivals {
			fence := int64(i*7%rivals + 1) // each once, in no order
			wg.Go(func() {
				try := func() error {
					return b.inTx(ctx, func(tx *sql.Tx) error {
						if err := b.table.Advance(ctx, tx, fence, "a"); err != nil {
							return err
						}
						return expect.Err(tx.ExecContext(ctx, "INSERT INTO history (place, fence) SELECT (SELECT count(*) FROM history), fence FROM items"))
					})
				}
				err := try()
				for on.conflicts && databaseError(err) {
					err = try() // as users do
				}
				expect.That(b, err == nil || errors.Is(err, lock.ErrStale), "fence %d: %v", fence, err)
			})
		}
		wg.Wait()
		rows := expect.Value(b.db.QueryContext(ctx, "SELECT fence FROM history ORDER BY place"))(b)
		defer func() { _ = rows.Close() }()
		var last int64
		for rows.Next() {
			var fence int64
			expect.OK(b, rows.Scan(&fence))
			expect.That(b, fence > last, "want rising fences, have %d after %d", fence, last)
			last = fence
		}
		expect.OK(b, rows.Err())
		have := b.fence()
		expect.That(b, last == rivals && have == rivals, "want the highest fence %d last, have %d, in the row %d", rivals, last, have)
	})
}

func TestBadTable(t *testing.T) {
	t.Parallel()
	id := []string{"id"}
	tests := []struct {
		name  string
		table sqlfence.Table
		want  string
	}{
		{"no name", sqlfence.Table{Key: id}, `name: want a name without quotes, have ""`},
		{"no table in the schema", sqlfence.Table{Name: "shop.", Key: id}, `name: want a name without quotes, have "shop."`},
		{"quoted name", sqlfence.Table{Name: "`items`", Key: id}, "name: want"},
		{"injection", sqlfence.Table{Name: `items" SET fence = 0; --`, Key: id}, `name: want`},
		{"no key", sqlfence.Table{Name: "items"}, `key of items: want a column or several, have none`},
		{"no column", sqlfence.Table{Name: "items", Key: []string{""}}, `key: want a name without quotes, have ""`},
		{"quoted column", sqlfence.Table{Name: "items", Key: []string{`"id"`}}, `key: want a name without quotes, have "\"id\""`},
		{"two columns, one value", sqlfence.Table{Name: "items", Key: []string{"id", "owner"}}, `key of items: want 2 values (id, owner), have 1`},
		{"fence ends the text", sqlfence.Table{Name: "items", Key: id, Fence: "fence\x00"}, `fence: want a name`},
		{"no dialect", sqlfence.Table{Name: "items", Key: id, Dialect: -1}, `dialect: want SQLite, PostgreSQL or MySQL, have Dialect(-1)`},
		{"dialect", sqlfence.Table{Name: "items", Key: id, Dialect: 7}, `dialect: want`},
	}
	each(t, backends(), func(b *bundle, _ backend) {
		for _, test := range tests {
			if test.table.Dialect == 0 {
				test.table.Dialect = b.dialect
			}
			err := b.advanceIn(b.Context(), test.table, 1, "a")
			expect.That(b, errors.Is(err, sqlfence.ErrTable) && (strings.Contains(err.Error(), test.want) || test.table.Dialect != b.dialect),
				"%s: want %v ... %s, have %v", test.name, sqlfence.ErrTable, test.want, err)
		}
	})
}

// TestNothingToSend: mistakes that are found without a database.
func TestNothingToSend(t *testing.T) {
	t.Parallel()
	table := sqlfence.Table{Name: "items", Key: []string{"id"}, Dialect: sqlfence.PostgreSQL}
	noDialect := table
	noDialect.Dialect = 0
	const noTransaction = `sqlfence: advance items "a": want a transaction, have nil`
	for _, tc := range []struct {
		err  error
		want string
	}{
		{table.Advance(t.Context(), nil, 1, "a"), noTransaction},
		{sqlfence.AdvancePgx[pgconn.CommandTag, pgx.Row](t.Context(), nil, table, 1, "a"), noTransaction},
		{noDialect.Advance(t.Context(), nil, 1, "a"), "sqlfence: bad table: dialect: want SQLite, PostgreSQL or MySQL, have Dialect(0)"},
	} {
		expect.That(t, tc.err != nil && tc.err.Error() == tc.want, "want %q, have %v", tc.want, tc.err)
	}
}

// TestPgx: a transaction of pgx advances a row as one of database/sql does. What differs is how pgx sends the values of a key, counts
// rows and reads.
func TestPgx(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	pool := expect.Value(pgxpool.New(ctx, pgtest.DSN(t)))(t)
	t.Cleanup(pool.Close)
	expect.OK(t, expect.Err(pool.Exec(ctx, `CREATE TABLE items (a BYTEA, b BIGINT, c TIMESTAMP, d BOOLEAN, e TEXT, PRIMARY KEY (a, b, c, d, e),
		fence BIGINT NOT NULL DEFAULT 0, empty BIGINT)`)))
	day := time.Date(2026, 11, 24, 10, 0, 0, 0, time.UTC)
	key, other := []any{[]byte{0xff, 0x00}, int64(3), day, true, "é"}, []any{[]byte{0xff, 0x00}, int64(3), day, false, "é"}
	expect.OK(t, expect.Err(pool.Exec(ctx, "INSERT INTO items VALUES ($1, $2, $3, $4, $5)", key...)))
	table := sqlfence.Table{Name: "items", Key: []string{"a", "b", "c", "d", "e"}, Dialect: sqlfence.PostgreSQL}
	empty, missing, foreign := table, table, table
	empty.Fence, missing.Fence, foreign.Dialect = "empty", "missing", sqlfence.SQLite
	advance := func(table sqlfence.Table, fence int64, key ...any) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return sqlfence.AdvancePgx(ctx, tx, table, fence, key...) })
	}
	for _, fence := range []int64{1, now, now} {
		expect.OK(t, advance(table, fence, key...))
	}
	rolledBack := errors.New("rolled back")
	expect.Is(t, "advance and roll back", pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		expect.OK(t, sqlfence.AdvancePgx(ctx, tx, table, now+1, key...))
		return rolledBack
	}), rolledBack)
	stale, ok := errors.AsType[*store.StaleError](advance(table, now-1, key...))
	expect.That(t, ok && stale.Seen == now, "older fence: want it refused by %d, have %+v", int64(now), stale)
	expect.Is(t, "no such row", advance(table, now, other...), sqlfence.ErrNoRow)
	expect.Is(t, "no fence", advance(table, 0, key...), lock.ErrNoFence)
	expect.Is(t, "NULL", advance(empty, 1, key...), sqlfence.ErrTable)
	err := advance(missing, 1, key...)
	expect.That(t, databaseError(err), "no such column: want an error of the database, have %v", err)
	expect.Equal(t, "another dialect", fmt.Sprint(advance(foreign, 1, key...)), "sqlfence: bad table: dialect: want PostgreSQL for pgx, have SQLite")
}

// TestTableAsTheDatabaseHasIt finds mistakes that only the database knows.
func TestTableAsTheDatabaseHasIt(t *testing.T) {
	t.Parallel()
	each(t, backends(), func(b *bundle, _ backend) {
		ctx := b.Context()
		b.exec("ALTER TABLE items ADD COLUMN empty BIGINT")

		for what, table := range map[string]sqlfence.Table{
			"table":        {Name: "itemz", Key: []string{"id"}},
			"schema":       {Name: "shop.items", Key: []string{"id"}},
			"key column":   {Name: "items", Key: []string{"idd"}}, // in double quotes a text for SQLite, which no row has
			"fence column": {Name: "items", Key: []string{"id"}, Fence: "fenze"},
		} {
			table.Dialect = b.dialect
			err := b.advanceIn(ctx, table, 1, "idd")
			expect.That(b, databaseError(err), "no such %s: want an error of the database, have %v", what, err)
		}

		null := b.table
		null.Fence = "empty"
		err := b.advanceIn(ctx, null, 1, "a")
		if want := `fence of items "a": want a column that is not null, have NULL`; !errors.Is(err, sqlfence.ErrTable) || !strings.HasSuffix(err.Error(), want) {
			b.Errorf("NULL: want %v: %s, have %v", sqlfence.ErrTable, want, err)
		}

		b.exec("INSERT INTO items (id) VALUES ('b')")
		shared := b.table
		shared.Key = []string{"owner"}
		const notUnique = `key (owner) is not unique: 2 rows of items ""`
		for _, fence := range []int64{3, 1} { // both rows are to be raised, and then none
			err := b.advanceIn(ctx, shared, fence, "")
			expect.That(b, errors.Is(err, sqlfence.ErrTable) && strings.HasSuffix(err.Error(), notUnique),
				"fence %d: want %v: %s, have %v", fence, sqlfence.ErrTable, notUnique, err)
			b.exec("UPDATE items SET fence = 2")
		}
	})
}
