package sqlfence

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/lock"
)

var (
	// ErrNoRow says that there is no row of the key, so that nothing could
	// remember the fence. Insert the row first.
	ErrNoRow = errors.New("sqlfence: no row")

	// ErrTable says that a [Table] does not fit the database, the call, or itself. The error names
	// the field.
	ErrTable = errors.New("sqlfence: bad table")
)

// A Table says where rows keep their fences. Names are written as the database
// has them, without quotes; reserved words will do. PostgreSQL keeps a name in
// lower case unless the name was quoted when the table was made.
type Table struct {
	// Name is the table's name: stock, or with its schema shop.stock.
	Name string
	// Key has the columns that together identify a row. They must be the primary
	// key, or those of a unique index.
	Key []string
	// Fence is the column that remembers the fence: a BIGINT, not null, 0 at
	// first. Defaults to "fence".
	Fence string
	// Dialect is the database's. Required.
	Dialect Dialect
}

// Advance raises the fence of one row to fence, inside tx, and locks the row
// until tx ends. The row's key has a value for each column of [Table.Key], in
// their order and of their types. Advance returns
//
//   - an error that matches [lock.ErrStale] when the row has seen a higher fence;
//   - [ErrNoRow] when there is no such row, which it does not create;
//   - [lock.ErrNoFence] when fence is not above zero, [ErrTable] for a bad Table;
//   - the database's error otherwise, wrapped.
//
// After any error but [ErrNoRow] tx has to be rolled back. The text names the table and the key.
func (t Table) Advance(ctx context.Context, tx *sql.Tx, fence int64, key ...any) error {
	exec := func(query string, args ...any) (int64, error) {
		if tx == nil {
			return 0, errNoTx
		}
		result, err := tx.ExecContext(ctx, query, args...)
		if err != nil {
			return 0, err
		}
		return result.RowsAffected()
	}
	read := func(query string, args ...any) row { return tx.QueryRowContext(ctx, query, args...) }
	return t.advance(exec, read, fence, key)
}

// A PgxTx is a transaction of pgx: a pgx.Tx. This package does not import pgx, which programs
// without PostgreSQL need not build. The compiler infers C, a pgconn.CommandTag, and R, a pgx.Row.
type PgxTx[C interface{ RowsAffected() int64 }, R interface{ Scan(dest ...any) error }] interface {
	Exec(ctx context.Context, query string, args ...any) (C, error)
	QueryRow(ctx context.Context, query string, args ...any) R
	// A connection or a pool has no Commit. Advanced in these, the row would be free again at once.
	Commit(ctx context.Context) error
}

// AdvancePgx is [Table.Advance] in a transaction of pgx. The table's dialect must be [PostgreSQL].
func AdvancePgx[C interface{ RowsAffected() int64 }, R interface{ Scan(dest ...any) error }](
	ctx context.Context, tx PgxTx[C, R], t Table, fence int64, key ...any,
) error {
	if t.Dialect != PostgreSQL {
		return fmt.Errorf("%w: dialect: want PostgreSQL for pgx, have %v", ErrTable, t.Dialect)
	}
	exec := func(query string, args ...any) (int64, error) {
		if tx == nil {
			return 0, errNoTx
		}
		tag, err := tx.Exec(ctx, query, args...)
		if err != nil {
			return 0, err
		}
		return tag.RowsAffected(), nil
	}
	read := func(query string, args ...any) row { return tx.QueryRow(ctx, query, args...) }
	return t.advance(exec, read, fence, key)
}

var errNoTx = errors.New("want a transaction, have nil")

// A row is the only one of a query's result.
type row interface{ Scan(dest ...any) error }

// advance is Advance by a function that runs a statement and returns how many rows are affected, and
// by one that reads a row.
func (t Table) advance(exec func(string, ...any) (int64, error), read func(string, ...any) row, fence int64, key []any) error {
	update, query, err := t.statements()
	switch {
	case err != nil:
		return err
	case len(key) != len(t.Key):
		return fmt.Errorf("%w: key of %s: want %d values (%s), have %d", ErrTable, t.Name, len(t.Key), strings.Join(t.Key, ", "), len(key))
	case fence <= 0:
		return fmt.Errorf("sqlfence: advance %s: %w: want more than 0, have %d", t.place(key), lock.ErrNoFence, fence)
	}
	args := append(append([]any{fence}, key...), fence)
	switch rows, err := exec(update, args...); {
	case err != nil:
		return fmt.Errorf("sqlfence: advance %s: %w", t.place(key), err)
	case rows == 1:
		return nil
	case rows > 1:
		return t.notUnique(rows, key)
	}

	// The update has decided already; this finds out why it touched no row.
	var rows int64
	var seen sql.Null[int64]
	if err := read(query, key...).Scan(&rows, &seen); err != nil {
		return fmt.Errorf("sqlfence: read %s: %w", t.place(key), err)
	}
	switch {
	case rows == 0:
		return fmt.Errorf("%w: %s", ErrNoRow, t.place(key))
	case rows > 1:
		return t.notUnique(rows, key)
	case !seen.Valid:
		return fmt.Errorf("%w: fence of %s: want a column that is not null, have NULL", ErrTable, t.place(key))
	case seen.V > fence:
		return &store.StaleError{Place: t.place(key), Fence: fence, Seen: seen.V}
	case seen.V == fence && t.Dialect == MySQL:
		// MySQL counts the rows that an update changes, and the row had this fence already. The
		// query has seen that in the newest version of the row, and has locked it.
		return nil
	default:
		// The row was inserted between the two statements, and the isolation level lets this one
		// see the row. The row was not there to be advanced.
		return fmt.Errorf("%w when it was to be advanced: %s", ErrNoRow, t.place(key))
	}
}

func (t Table) notUnique(rows int64, key []any) error {
	return fmt.Errorf("%w: key (%s) is not unique: %d rows of %s", ErrTable, strings.Join(t.Key, ", "), rows, t.place(key))
}

// place names a row in errors, like: shop.stock (3, "85123A").
func (t Table) place(key []any) string {
	values := make([]string, len(key))
	for i, value := range key {
		if plain, err := driver.DefaultParameterConverter.ConvertValue(value); err == nil {
			value = plain // what a pointer points to, or the text of a UUID
		}
		switch value := value.(type) {
		case string:
			values[i] = fmt.Sprintf("%q", value)
		case []byte:
			values[i] = fmt.Sprintf("%#x", value)
		default:
			values[i] = fmt.Sprint(value)
		}
	}
	if len(values) == 1 {
		return t.Name + " " + values[0]
	}
	return t.Name + " (" + strings.Join(values, ", ") + ")"
}
