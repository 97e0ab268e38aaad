package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"modernc.org/sqlite"

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/lock/sqlfence"
)

const (
	// openTimeout bounds Open where its context does not: long enough for
	// several processes that create one file together.
	openTimeout = 15 * time.Second
	// postgresConns is how many connections one process opens at most: the
	// server's usual limit of 100 has room for a small fleet.
	postgresConns = 16
	// sqliteReaders serve checks and reports beside the one connection that
	// writes.
	sqliteReaders = 2
	// busyPoll is how often a process asks for the file while another one is
	// writing. SQLite's own waiting grows to 100 ms a time, which starves one of
	// two busy processes for most of a second.
	busyPoll = time.Millisecond
	// busyTimeout is when it gives up: a transaction takes well below 1 ms, so
	// somebody has left one open.
	busyTimeout = 10 * time.Second
)

// A Ledger is an open database. It is safe for use by several goroutines.
type Ledger struct {
	name    string  // the DSN without its password, for errors
	db      *sql.DB // for tasks
	readers *sql.DB // for everybody else; the same as db in PostgreSQL
	dialect sqlfence.Dialect
	tables  tables
}

// Open opens the ledger named by dsn and creates its tables where they are
// missing; processes that do so at the same time do not disturb each other.
//
//	ledger.db, sqlite:ledger.db     a file of SQLite (its folder must exist)
//	postgres://user@host/database   a PostgreSQL server
//
// A file is kept in write-ahead mode and must be on a local disk. The last
// tasks before a power cut may be undone in it, but not torn. The parameters of
// SQLite's URIs may follow the path: sqlite:ledger.db?mode=ro.
//
// Open proves by a write that the database takes writes. Its errors name the
// DSN, without passwords, and what is wrong with it. They are worth a retry
// only where a server is not up yet.
func Open(ctx context.Context, dsn string) (*Ledger, error) {
	source, err := parseDSN(dsn)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()

	l := &Ledger{name: source.name, dialect: source.dialect}
	if source.dialect == sqlfence.SQLite {
		err = l.openSQLite(source)
	} else {
		err = l.openPostgres(source)
	}
	if err != nil {
		return nil, err
	}
	if err := l.prepare(ctx); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// openSQLite makes the pools of a file. One connection writes: SQLite has one
// writer at a time anyway, and goroutines that queue for a connection take turns,
// whereas connections that meet at the file's lock sleep and try again.
func (l *Ledger) openSQLite(source source) error {
	// SQLite says "unable to open database file" to all of these.
	if folder := filepath.Dir(source.path); !isFolder(folder) {
		return fmt.Errorf("ledger %s: no folder %s", l.name, folder)
	}
	if isFolder(source.path) {
		return fmt.Errorf("ledger %s: want a file, have a folder", l.name)
	}
	writer, err := sqlite.NewConnector(source.sqliteURI("_busy_timeout=0&_txlock=immediate"))
	if err != nil {
		return fmt.Errorf("ledger %s: %w", l.name, err)
	}
	reader, err := sqlite.NewConnector(source.sqliteURI(fmt.Sprintf("_busy_timeout=%d&_query_only=1", busyTimeout.Milliseconds())))
	if err != nil {
		return fmt.Errorf("ledger %s: %w", l.name, err)
	}
	l.db, l.readers = sql.OpenDB(writer), sql.OpenDB(reader)
	l.db.SetMaxOpenConns(1)
	l.readers.SetMaxOpenConns(sqliteReaders)
	return nil
}

func (l *Ledger) openPostgres(source source) error {
	config, err := pgx.ParseConfig(source.url)
	if err != nil {
		return fmt.Errorf("ledger %s: %s", l.name, source.redact(err.Error()))
	}
	l.db = stdlib.OpenDB(*config)
	l.db.SetMaxOpenConns(postgresConns)
	l.db.SetMaxIdleConns(postgresConns)
	l.readers = l.db
	return nil
}

// Close closes the connections; running steps end first.
func (l *Ledger) Close() error {
	err := l.db.Close()
	if l.readers != l.db {
		err = errors.Join(err, l.readers.Close())
	}
	if err != nil {
		return fmt.Errorf("ledger %s: close: %w", l.name, err)
	}
	return nil
}

// DB returns the database for reading, as checks and reports do; it stays the
// ledger's to close. In SQLite it cannot write.
func (l *Ledger) DB() *sql.DB { return l.readers }

// Name returns the DSN without its password.
func (l *Ledger) Name() string { return l.name }

// inTx runs fn in a transaction that commits unless fn returns an error, which
// is returned as it is. Other errors say what was being done. fn uses the context
// that it is given.
func (l *Ledger) inTx(ctx context.Context, doing string, fn func(context.Context, *sql.Tx) error) error {
	conn, err := l.db.Conn(ctx)
	if err != nil {
		return l.explain(ctx, doing, err)
	}
	defer func() { _ = conn.Close() }() // which gives it back

	step := ctx
	if l.dialect == sqlfence.SQLite {
		// Statements take microseconds, watching ctx from a goroutine during
		// each of them about as long again.
		step = context.WithoutCancel(ctx)
	}
	tx, err := begin(ctx, step, conn)
	if err != nil {
		return l.explain(ctx, doing, err)
	}
	defer func() { _ = tx.Rollback() }() // without effect once it is committed
	if err := fn(step, tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return l.explain(ctx, doing, err)
	}
	return nil
}

// begin begins a transaction for step, as soon as no other process is writing to
// the file. It waits on ctx.
func begin(ctx, step context.Context, conn *sql.Conn) (*sql.Tx, error) {
	for start := time.Now(); ; {
		tx, err := conn.BeginTx(step, nil)
		if err == nil || !isLocked(err) || time.Since(start) > busyTimeout {
			return tx, err
		}
		if sleep.For(ctx, busyPoll) != nil {
			return nil, err
		}
	}
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
