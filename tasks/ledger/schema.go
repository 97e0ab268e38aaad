package ledger

import (
	"context"
	"database/sql"
	_ "embed" // for schema.sql
	"errors"
	"fmt"
	"strings"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/lock/sqlfence"
)

//go:embed schema.sql
var schema string

// schemaVersion is the one that schema.sql describes.
const schemaVersion = 1

// prepare creates the tables, shows by a write that the database takes one, and
// prepares the statements.
func (l *Ledger) prepare(ctx context.Context) error {
	// Another process that has the file open while it is switched to
	// write-ahead mode makes that fail at once, without the usual waiting.
	err := l.create(ctx)
	for isLocked(err) && sleep.For(ctx, 10*time.Millisecond) == nil {
		err = l.create(ctx)
	}
	if err != nil {
		return err
	}
	p := preparer{db: l.db, dialect: l.dialect}
	l.tables = p.tables(ctx)
	if p.err != nil {
		return l.explain(ctx, "prepare statements", p.err)
	}
	return nil
}

func (l *Ledger) create(ctx context.Context) error {
	const doing = "create tables"
	return l.inTx(ctx, doing, func(ctx context.Context, tx *sql.Tx) error {
		if l.dialect == sqlfence.PostgreSQL {
			// Two sessions that create one table at the same time fail on each
			// other despite IF NOT EXISTS. The number is this schema's own.
			if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock(7306370001)"); err != nil {
				return l.explain(ctx, doing, err)
			}
		}
		for statement := range strings.SplitSeq(schemaFor(l.dialect), ";") {
			if strings.TrimSpace(statement) == "" {
				continue
			}
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return l.explain(ctx, doing, err)
			}
		}
		return l.probe(ctx, tx)
	})
}

// probe is the write that shows that writes work. It also keeps an older
// program from writing to tables it does not know.
func (l *Ledger) probe(ctx context.Context, tx *sql.Tx) error {
	const doing = "test write"
	var version int64
	err := tx.QueryRowContext(ctx, "SELECT version FROM ledger_meta WHERE id = 1").Scan(&version)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return l.explain(ctx, doing, err)
	}
	if err == nil && version != schemaVersion {
		return fmt.Errorf("ledger %s: tables of version %d: want %d; another version of this program made them", l.name, version, schemaVersion)
	}
	const upsert = "INSERT INTO ledger_meta (id, version, opened_ms) VALUES (1, ?1, ?2)" +
		" ON CONFLICT (id) DO UPDATE SET opened_ms = excluded.opened_ms"
	if _, err := tx.ExecContext(ctx, rebind(l.dialect, upsert), schemaVersion, time.Now().UnixMilli()); err != nil {
		return l.explain(ctx, doing, err)
	}
	return nil
}

// schemaFor fills in the one thing that the dialects do not share: rows that
// live in the primary key's tree spare SQLite a second tree per table.
func schemaFor(dialect sqlfence.Dialect) string {
	options := ""
	if dialect == sqlfence.SQLite {
		options = "WITHOUT ROWID"
	}
	return strings.ReplaceAll(schema, "/*options*/", options)
}

// rebind writes placeholders as the dialect wants them: ?1 or $1.
func rebind(dialect sqlfence.Dialect, statement string) string {
	if dialect == sqlfence.PostgreSQL {
		return strings.ReplaceAll(statement, "?", "$")
	}
	return statement
}

// explain says what an error of the database means for whoever runs it, which
// the database's own words often do not. The end of ctx is given as the cause
// when that is what happened.
func (l *Ledger) explain(ctx context.Context, doing string, err error) error {
	missing := ctx.Err() == nil && isUnavailable(err)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	hint := ""
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		switch e.Code() & 0xff { // without the detail that extended codes add
		case sqlite3.SQLITE_READONLY:
			hint = "it is read-only: "
		case sqlite3.SQLITE_FULL:
			hint = "disk or database is full: "
		case sqlite3.SQLITE_CANTOPEN:
			hint = "may the file and its folder be written to? "
		case sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT:
			hint = "the file is no database, or a damaged one: "
		case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
			hint = "another program keeps it locked: "
		}
	}
	err = fmt.Errorf("ledger %s: %s: %s%w", l.name, doing, hint, err)
	if missing {
		return unavailableError{err}
	}
	return err
}

// isLocked reports whether err says that another connection was in the way.
func isLocked(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && e.Code()&0xff == sqlite3.SQLITE_BUSY
}
