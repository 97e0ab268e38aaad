package sqlfence

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/lock"
)

var (
	// ErrNoRow says that there is no row of the key, so that nothing could
	// remember the fence. Insert the row first.
	ErrNoRow = errors.New("sqlfence: no row")

	// ErrTable says that a [Table] cannot be used as it is written. The error names the field.
	ErrTable = errors.New("sqlfence: bad table")
)

// A Dialect is a way of writing placeholders.
type Dialect int

// The dialects.
const (
	SQLite     Dialect = iota // ?
	PostgreSQL                // $1
)

// A Table says where rows keep their fences. The names go into the SQL text unquoted. They are
// plain identifiers, at most 63 bytes long, and no reserved words.
type Table struct {
	// Name is the table's name.
	Name string
	// Key is the column that identifies a row; it must be unique.
	Key string
	// Fence is the column that remembers the fence: a BIGINT, not null, 0 at
	// first. Defaults to "fence".
	Fence string
	// Dialect is the database's. Defaults to SQLite.
	Dialect Dialect
}

// Advance raises the fence of the row of key to fence, inside tx, and locks the
// row until tx ends. It returns
//
//   - an error that matches [lock.ErrStale] when the row has seen a higher fence;
//   - [ErrNoRow] when there is no such row, which it does not create;
//   - [lock.ErrNoFence] when fence is not above zero, [ErrTable] for a bad Table;
//   - the database's error otherwise, wrapped.
//
// After an error tx has to be rolled back.
//
// In SQLite tx should be a writing one from the start (BEGIN IMMEDIATE), as with
// every transaction that will write. In PostgreSQL every isolation level will do.
func (t Table) Advance(ctx context.Context, tx *sql.Tx, key string, fence int64) error {
	update, query, err := t.statements()
	if err != nil {
		return err
	}
	if fence <= 0 {
		return fmt.Errorf("sqlfence: advance %s %q: %w: want more than 0, have %d", t.Name, key, lock.ErrNoFence, fence)
	}
	result, err := tx.ExecContext(ctx, update, fence, key)
	if err != nil {
		return fmt.Errorf("sqlfence: advance %s %q: %w", t.Name, key, err)
	}
	rows, err := result.RowsAffected()
	if err != nil {
		return fmt.Errorf("sqlfence: advance %s %q: %w", t.Name, key, err)
	}
	if rows == 1 {
		return nil
	}
	if rows > 1 {
		return fmt.Errorf("%w: column %s of %s is not unique: %d rows of %q", ErrTable, t.Key, t.Name, rows, key)
	}

	// The update has decided already; this only finds out why it refused.
	var seen int64
	switch err := tx.QueryRowContext(ctx, query, key).Scan(&seen); {
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("%w of %q in %s", ErrNoRow, key, t.Name)
	case err != nil:
		return fmt.Errorf("sqlfence: read %s %q: %w", t.Name, key, err)
	case seen <= fence:
		// The row was inserted between the two statements, and the isolation level lets this one
		// see the row. The row was not there to be advanced.
		return fmt.Errorf("%w of %q in %s when it was to be advanced", ErrNoRow, key, t.Name)
	}
	return &store.StaleError{Place: fmt.Sprintf("%s %q", t.Name, key), Fence: fence, Seen: seen}
}

// statements returns the statement that compares and raises in one, and the
// query for a row's fence.
func (t Table) statements() (update, query string, err error) {
	fence := cmp.Or(t.Fence, "fence")
	for _, name := range []struct{ what, text string }{{"name", t.Name}, {"key", t.Key}, {"fence", fence}} {
		if !plainIdentifier(name.text) {
			return "", "", fmt.Errorf("%w: %s: want a plain identifier (letters, digits, _), have %q", ErrTable, name.what, name.text)
		}
	}
	newFence, key, onlyKey := "?1", "?2", "?1"
	switch t.Dialect {
	case SQLite:
	case PostgreSQL:
		newFence, key, onlyKey = "$1", "$2", "$1"
	default:
		return "", "", fmt.Errorf("%w: dialect: want SQLite or PostgreSQL, have %d", ErrTable, t.Dialect)
	}
	update = "UPDATE " + t.Name + " SET " + fence + " = " + newFence +
		" WHERE " + t.Key + " = " + key + " AND " + fence + " <= " + newFence
	query = "SELECT " + fence + " FROM " + t.Name + " WHERE " + t.Key + " = " + onlyKey
	return update, query, nil
}

// plainIdentifier keeps SQL out of the names. PostgreSQL silently cuts a name off after 63 bytes.
func plainIdentifier(s string) bool {
	if s == "" || len(s) > 63 {
		return false
	}
	for i, c := range []byte(s) {
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		digit := '0' <= c && c <= '9'
		if !letter && (!digit || i == 0) {
			return false
		}
	}
	return true
}
