package ledger

import (
	"context"
	"database/sql"
	_ "embed" // for schema.sql
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/lock/sqlfence"
)

const (
	// createTimeout bounds CreateTables. That is long enough for several processes that create one file
	// together.
	createTimeout = 15 * time.Second
	// postgresConns is how many connections one process opens at most. So the server's usual limit
	// of 100 has room for a small fleet.
	postgresConns = 16
	// busyPoll is how often a process asks for the file while another one is writing. SQLite's own
	// waiting grows to 100 ms a time, which starves one of two busy processes for most of a second.
	busyPoll = time.Millisecond
	// busyTimeout is when a process gives up. A transaction takes well below 1 ms: somebody has left
	// one open.
	busyTimeout = 10 * time.Second
)

//go:embed schema.sql
var schema string

// schemaVersion is the version of the tables in schema.sql.
const schemaVersion = 2

// A Ledger is an open database. A Ledger is safe for use by several goroutines.
type Ledger struct {
	name    string // the DSN without passwords, for errors
	db      *sql.DB
	dialect sqlfence.Dialect
}

// Open returns the ledger named by dsn. Like [sql.Open] it connects to nothing and makes no file. No
// error shows a password. A DSN that cannot be read is not shown, as nothing says where its password begins.
//
//	ledger.db, sqlite:ledger.db     a file of SQLite (its folder must exist)
//	postgres://user@host/database   a PostgreSQL server
//
// A file is kept in write-ahead mode and must be on a local disk. The last
// tasks before a power cut may be undone in it, but not torn. The parameters of
// SQLite's URIs may follow the path: sqlite:ledger.db?mode=rw makes no file.
func Open(dsn string) (*Ledger, error) {
	const want = "a path, sqlite:PATH or postgres://..."
	have := scheme.FindStringSubmatch(dsn)
	if have == nil {
		if noPath.MatchString(dsn) {
			return nil, wrong("DSN: want %s, have neither", want)
		}
		return newSQLite(dsn, dsn)
	}
	switch strings.ToLower(have[1]) {
	case "sqlite":
		return newSQLite(dsn, strings.TrimPrefix(dsn[len(have[0]):], "//"))
	case "postgres", "postgresql":
		return newPostgres(dsn)
	default:
		return nil, wrong("DSN scheme: want %s, have %q", want, have[0])
	}
}

// CreateTables creates the tables where they are missing; processes that do so at the same time do
// not disturb each other. CreateTables also proves by a write that the database takes writes. An older
// program gets an error for tables that it does not know. Only a server that is not up yet is worth a retry.
func (l *Ledger) CreateTables(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	return l.inTx(ctx, "create tables", func(ctx context.Context, tx *sql.Tx) error {
		if l.dialect == sqlfence.PostgreSQL {
			// Two sessions that create one table at the same time fail on each
			// other despite IF NOT EXISTS. The number is this schema's own.
			if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock(7306370001)"); err != nil {
				return err
			}
		}
		if _, err := tx.ExecContext(ctx, schema); err != nil {
			return err
		}
		const upsert = "INSERT INTO ledger_meta (id, version, opened_ms) VALUES (1, $1, $2) ON CONFLICT (id) DO UPDATE SET opened_ms = excluded.opened_ms"
		if _, err := tx.ExecContext(ctx, upsert, schemaVersion, time.Now().UnixMilli()); err != nil {
			return err
		}
		var version int64
		err := tx.QueryRowContext(ctx, "SELECT version FROM ledger_meta").Scan(&version)
		if err == nil && version != schemaVersion {
			err = fmt.Errorf("want version %d, have %d, which another version of this program made", schemaVersion, version)
		}
		return err
	})
}

// Close closes the connections; running steps end first.
func (l *Ledger) Close() error {
	if err := l.db.Close(); err != nil {
		return fmt.Errorf("ledger %s: close: %w", l.name, err)
	}
	return nil
}

// DB returns the database for checks and reports. The ledger closes it.
func (l *Ledger) DB() *sql.DB { return l.db }

// Name returns the DSN without passwords.
func (l *Ledger) Name() string { return l.name }

// inTx runs fn, on the context that it passes, in a transaction that commits unless fn returns an
// error. Errors name the step, and wrap [ErrUnavailable] when no step can work.
func (l *Ledger) inTx(ctx context.Context, doing string, fn func(context.Context, *sql.Tx) error) error {
	step := ctx
	if l.dialect == sqlfence.SQLite {
		// A statement takes microseconds. A goroutine that watches ctx during each takes as long again.
		step = context.WithoutCancel(ctx)
	}
	err := func() error {
		tx, err := l.begin(ctx, step)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // without effect after the commit
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := fn(step, tx); err != nil {
			return err
		}
		return tx.Commit()
	}()
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil { // the end of this step; a deadline looks like a fault of the network
		if !errors.Is(err, cause) {
			err = fmt.Errorf("%w (%w)", cause, err)
		}
	} else if isUnavailable(err) {
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return fmt.Errorf("ledger %s: %s: %w", l.name, doing, err)
}

// begin begins a transaction for step as soon as no other process is writing to the file. The
// transaction waits for others until ctx ends.
func (l *Ledger) begin(ctx, step context.Context) (*sql.Tx, error) {
	for start := time.Now(); ; {
		tx, err := l.db.BeginTx(step, nil)
		if err == nil || !isBusy(err) || time.Since(start) > busyTimeout || sleep.For(ctx, busyPoll) != nil {
			return tx, err
		}
	}
}
