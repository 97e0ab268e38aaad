package sqlfence_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sidingq/siding/lock/sqlfence"
)

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
	each(t, backends(), func(t *testing.T, b *bundle, _ backend) {
		t.Helper()
		for _, test := range tests {
			if test.table.Dialect == 0 {
				test.table.Dialect = b.dialect
			}
			err := b.advanceIn(t.Context(), test.table, 1, "a")
			if !errors.Is(err, sqlfence.ErrTable) || !strings.Contains(err.Error(), test.want) && test.table.Dialect == b.dialect {
				t.Errorf("%s: want %v ... %s, have %v", test.name, sqlfence.ErrTable, test.want, err)
			}
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
		if tc.err == nil || tc.err.Error() != tc.want {
			t.Errorf("want %q, have %v", tc.want, tc.err)
		}
	}
}

// TestPgxNeedsPostgreSQL wants no statement of another dialect sent by pgx.
func TestPgxNeedsPostgreSQL(t *testing.T) {
	t.Parallel()
	b := openPgx(t, "")
	table := b.table
	table.Dialect = sqlfence.SQLite
	err := b.advanceIn(t.Context(), table, 1, "a")
	if want := "dialect: want PostgreSQL for pgx, have SQLite"; !errors.Is(err, sqlfence.ErrTable) || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("want %v: %s, have %v", sqlfence.ErrTable, want, err)
	}
}

// TestTableAsTheDatabaseHasIt finds mistakes that only the database knows.
func TestTableAsTheDatabaseHasIt(t *testing.T) {
	t.Parallel()
	each(t, backends(), func(t *testing.T, b *bundle, _ backend) {
		t.Helper()
		ctx := t.Context()
		b.exec(t, "ALTER TABLE items ADD COLUMN empty BIGINT")

		for what, table := range map[string]sqlfence.Table{
			"table":        {Name: "itemz", Key: []string{"id"}},
			"schema":       {Name: "shop.items", Key: []string{"id"}},
			"key column":   {Name: "items", Key: []string{"idd"}}, // in double quotes a text for SQLite, which no row has
			"fence column": {Name: "items", Key: []string{"id"}, Fence: "fenze"},
		} {
			table.Dialect = b.dialect
			if err := b.advanceIn(ctx, table, 1, "idd"); !databaseError(err) {
				t.Errorf("no such %s: want an error of the database, have %v", what, err)
			}
		}

		null := b.table
		null.Fence = "empty"
		err := b.advanceIn(ctx, null, 1, "a")
		if want := `fence of items "a": want a column that is not null, have NULL`; !errors.Is(err, sqlfence.ErrTable) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("NULL: want %v: %s, have %v", sqlfence.ErrTable, want, err)
		}

		b.exec(t, "INSERT INTO items (id) VALUES ('b')")
		shared := b.table
		shared.Key = []string{"owner"}
		const notUnique = `key (owner) is not unique: 2 rows of items ""`
		for _, fence := range []int64{3, 1} { // both rows are to be raised, and then none
			err := b.advanceIn(ctx, shared, fence, "")
			if !errors.Is(err, sqlfence.ErrTable) || !strings.HasSuffix(err.Error(), notUnique) {
				t.Errorf("fence %d: want %v: %s, have %v", fence, sqlfence.ErrTable, notUnique, err)
			}
			b.exec(t, "UPDATE items SET fence = 2")
		}
	})
}
