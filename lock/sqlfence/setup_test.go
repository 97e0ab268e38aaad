package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/pgtest"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/sqlfence"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A bundle is a database with a table of which one row, "a", exists.
type bundle struct {
	*testing.T

	db      *sql.DB
	dialect sqlfence.Dialect
	table   sqlfence.Table
	begin   func(ctx context.Context) (*sql.Tx, error)
	waiting func() bool // whether a transaction waits for a lock; nil for SQLite, where writers wait to begin
}

// inTx runs fn in a transaction, which commits if fn returns nil.
func (b *bundle) inTx(ctx context.Context, fn func(*sql.Tx) error) error {
	tx, err := b.begin(ctx)
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
func (b *bundle) advance(ctx context.Context, fence int64, key ...any) error {
	return b.advanceIn(ctx, b.table, fence, key...)
}

func (b *bundle) advanceIn(ctx context.Context, table sqlfence.Table, fence int64, key ...any) error {
	return b.inTx(ctx, func(tx *sql.Tx) error { return table.Advance(ctx, tx, fence, key...) })
}

func (b *bundle) exec(query string, args ...any) {
	b.Helper()
	_, err := b.db.ExecContext(b.Context(), query, args...)
	expect.Need(b, err == nil, "%s: %v", query, err)
}

func (b *bundle) number(query string) (n int64) {
	b.Helper()
	if err := b.db.QueryRowContext(b.Context(), query).Scan(&n); err != nil {
		b.Fatalf("%s: %v", query, err)
	}
	return n
}

func (b *bundle) fence() int64 {
	b.Helper()
	return b.number("SELECT fence FROM items WHERE id = 'a'")
}

// quoted returns names as this database quotes them.
func (b *bundle) quoted(query string) string {
	if b.dialect == sqlfence.PostgreSQL {
		return query
	}
	return strings.ReplaceAll(query, `"`, "`")
}

// A backend is a database with a driver and an isolation level.
type backend struct {
	server, name string
	open         func(*testing.T) *bundle
	// conflicts says that a transaction fails by an error of the database if the row has changed
	// since the transaction began.
	conflicts bool
}

// backends returns the databases, each at its default isolation level.
func backends() []backend {
	return []backend{
		{"sqlite", "immediate", func(t *testing.T) *bundle { t.Helper(); return openSQLite(t, "immediate") }, false},
		{"postgresql", "default", func(t *testing.T) *bundle { t.Helper(); return openPostgres(t, sql.LevelDefault) }, false},
		{"mysql", "changed rows", func(t *testing.T) *bundle { t.Helper(); return openMySQL(t, sql.LevelDefault, false, false) }, false},
		{"mysql", "found rows", func(t *testing.T) *bundle { t.Helper(); return openMySQL(t, sql.LevelDefault, true, false) }, false},
	}
}

// levels returns the servers at each of their isolation levels.
func levels() (all []backend) {
	for _, level := range []sql.IsolationLevel{sql.LevelReadUncommitted, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		conflicts := level >= sql.LevelRepeatableRead // in PostgreSQL
		all = append(
			all,
			backend{"postgresql", level.String(), func(t *testing.T) *bundle { t.Helper(); return openPostgres(t, level) }, conflicts},
			backend{"mysql", level.String(), func(t *testing.T) *bundle { t.Helper(); return openMySQL(t, level, false, false) }, false},
		)
	}
	return append(all, backend{"mysql", "snapshot", func(t *testing.T) *bundle {
		t.Helper()
		return openMySQL(t, sql.LevelRepeatableRead, false, true)
	}, true})
}

// each runs a test on each backend. A server runs until the last test that needs it has ended.
func each(t *testing.T, all []backend, run func(*bundle, backend)) {
	t.Helper()
	for server, hold := range map[string]func(*testing.T){
		"sqlite":     func(*testing.T) {},
		"postgresql": func(t *testing.T) { t.Helper(); pgtest.DSN(t) },
		"mysql":      func(t *testing.T) { t.Helper(); mysqlDatabase(t) },
	} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			hold(t)
			for _, on := range all {
				if on.server == server {
					t.Run(on.name, func(t *testing.T) {
						t.Parallel()
						run(on.open(t), on)
					})
				}
			}
		})
	}
}

// openSQLite opens a database whose transactions begin as mode says.
func openSQLite(t *testing.T, mode string) *bundle {
	t.Helper()
	dsn := "file:" + filepath.Join(t.TempDir(), "items.db") + "?_txlock=" + mode + "&_busy_timeout=30000&_journal_mode=WAL"
	return fill(t, &bundle{db: openDB(t, "sqlite", dsn), dialect: sqlfence.SQLite})
}

func openPostgres(t *testing.T, level sql.IsolationLevel) *bundle {
	t.Helper()
	b := &bundle{db: openDB(t, "pgx", pgtest.DSN(t)), dialect: sqlfence.PostgreSQL}
	b.waiting = func() bool {
		return b.number("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") > 0
	}
	return fill(t, b, level)
}

// openMySQL opens a database whose updates affect the rows that they find, or those that they
// change. With snapshot a transaction may not lock what has changed since it began.
func openMySQL(t *testing.T, level sql.IsolationLevel, foundRows, snapshot bool) *bundle {
	t.Helper()
	config := mysqlDatabase(t)
	config.ClientFoundRows = foundRows
	config.Params = map[string]string{"innodb_snapshot_isolation": strconv.FormatBool(snapshot)}
	connector := expect.Value(mysql.NewConnector(config))(t)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	// The tables about transactions do not change while somebody reads them every 100 ms, so this
	// reads the monitor's text.
	wait := regexp.MustCompile("of table `" + config.DBName + "`\\.`items` .* waiting")
	waiting := func() bool {
		var kind, name, text string
		expect.OK(t, db.QueryRowContext(t.Context(), "SHOW ENGINE INNODB STATUS").Scan(&kind, &name, &text))
		return wait.MatchString(text)
	}
	return fill(t, &bundle{db: db, dialect: sqlfence.MySQL, waiting: waiting}, level)
}

func openDB(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db := expect.Value(sql.Open(driver, dsn))(t)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// fill creates the tables, and has transactions of database/sql begin at a level.
func fill(t *testing.T, b *bundle, level ...sql.IsolationLevel) *bundle {
	t.Helper()
	b.T = t
	for _, statement := range []string{
		"CREATE TABLE items (id VARCHAR(40) PRIMARY KEY, owner VARCHAR(40) NOT NULL DEFAULT '')",
		"INSERT INTO items (id) VALUES ('a')",
		// As the documentation tells users to do with a table that has rows.
		"ALTER TABLE items ADD COLUMN fence BIGINT NOT NULL DEFAULT 0",
		"CREATE TABLE history (place BIGINT NOT NULL, fence BIGINT NOT NULL)",
	} {
		b.exec(statement)
	}
	b.table = sqlfence.Table{Name: "items", Key: []string{"id"}, Dialect: b.dialect}
	var options sql.TxOptions
	if len(level) > 0 {
		options.Isolation = level[0]
	}
	b.begin = func(ctx context.Context) (*sql.Tx, error) { return b.db.BeginTx(ctx, &options) }
	return b
}

// databaseError reports whether err is the database's own refusal, and none of this package's.
func databaseError(err error) bool {
	for _, own := range []error{lock.ErrStale, lock.ErrNoFence, sqlfence.ErrNoRow, sqlfence.ErrTable} {
		if errors.Is(err, own) {
			return false
		}
	}
	return err != nil
}

func (b *bundle) placeholders(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = "?"
		if b.dialect == sqlfence.PostgreSQL {
			all[i] = fmt.Sprintf("$%d", i+1)
		}
	}
	return strings.Join(all, ", ")
}
