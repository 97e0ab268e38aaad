package ledger

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sidingq/siding/lock/sqlfence"
)

// host matches a host or an address, with a port or without, or nothing.
const host = `([^][:,@/?#]+|\[[^][,@/?#]+\])?(:[0-9]+)?`

var (
	// scheme matches the start of a URL, and of other DSNs such as "mysql:". A single letter
	// before a colon is a drive.
	scheme = regexp.MustCompile(`^([a-zA-Z][a-zA-Z0-9+.-]+):`)
	// noPath matches texts without a scheme that may hold a password. They are libpq's form (host=db
	// password=secret), and what is left of a URL whose scheme is missing or misspelt
	// (//user@host/db, user:secret@host). A file of such a name is sqlite:NAME.
	noPath = regexp.MustCompile(`(?is)^\s*([a-z_]+\s*=|//)|:.*@|passw(or)?d\s*=`)
	// server matches URLs of PostgreSQL, of which all but the password and the query may be shown. The only
	// @ and the only colons are those that belong there. A parser of URLs has more patience: it takes a part of
	// a password with a slash for the database, and user:password:5432, which lacks its host, for a host.
	server = regexp.MustCompile(`^postgres(ql)?://([^:@/?#]*(:[^/?#]*)?@)?` + host + `(,` + host + `)*(/[^:@?#]*)?(\?[^@#]*)?$`)
)

// A DSNError says what is wrong with the form of a DSN, which is a mistake in a setting.
// The text holds no password.
type DSNError string

// Error reads like: ledger: DSN "sqlite:": want the path of a file, which several connections can share.
func (e DSNError) Error() string { return "ledger: " + string(e) }

func wrong(format string, args ...any) error {
	return DSNError(fmt.Sprintf(format, args...))
}

// newSQLite opens one connection. SQLite has one writer at a time. Goroutines that wait for a
// connection get it in order. Connections that meet at the file's lock would sleep and try again.
func newSQLite(dsn, file string) (*Ledger, error) {
	path, query, _ := strings.Cut(file, "?")
	if strings.TrimSpace(path) == "" || path == ":memory:" {
		return nil, wrong("DSN %q: want the path of a file, which several connections can share", dsn)
	}
	if _, err := os.Stat(filepath.Dir(path)); err != nil { // SQLite would not say so
		return nil, fmt.Errorf("ledger %s: %w", dsn, err)
	}
	// The path is escaped, so that one with % or # in it comes through.
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+
		"?_journal_mode=WAL&_synchronous=NORMAL&_error_rc=1&_busy_timeout=0&_txlock=immediate&"+query)
	if err != nil {
		return nil, fmt.Errorf("ledger %s: %w", dsn, err)
	}
	db.SetMaxOpenConns(1)
	return &Ledger{name: dsn, db: db, dialect: sqlfence.SQLite}, nil
}

// errParameter stands for an error of the driver that names no reason.
var errParameter = errors.New("a port or a parameter of the URL is wrong")

func newPostgres(dsn string) (*Ledger, error) {
	u, err := url.Parse(dsn)
	if err == nil {
		_, err = url.ParseQuery(u.RawQuery)
	}
	if err != nil || !server.MatchString(dsn) {
		return nil, wrong("DSN postgres:...: want a URL such as postgres://user@host/database (special characters in its parts as %%XX)")
	}
	// Passwords may stand before the host and in the query.
	name := (&url.URL{Scheme: u.Scheme, User: url.User(u.User.Username()), Host: u.Host, Path: u.Path}).String()
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		// The text of err itself quotes the DSN.
		return nil, wrong("DSN %q: %v", name, cmp.Or(errors.Unwrap(err), errParameter))
	}
	db := stdlib.OpenDB(*config)
	db.SetMaxOpenConns(postgresConns)
	db.SetMaxIdleConns(postgresConns)
	return &Ledger{name: name, db: db, dialect: sqlfence.PostgreSQL}, nil
}
