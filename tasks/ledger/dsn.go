package ledger

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/sidingq/siding/lock/sqlfence"
)

// A source is a DSN that has been read.
type source struct {
	name    string // fit to be shown
	dialect sqlfence.Dialect
	path    string   // SQLite: the file
	query   string   // SQLite: further parameters
	url     string   // PostgreSQL: the DSN as it came
	secrets []string // PostgreSQL: what must not be shown
}

// scheme matches the start of a URL, and of other DSNs such as "mysql:"; a
// single letter before a colon is a drive.
var scheme = regexp.MustCompile(`^([a-zA-Z][a-zA-Z0-9+.-]+):`)

var (
	// keyValue matches libpq's other form of a DSN (host=db password=secret). A file of such a
	// name is sqlite:NAME or ./NAME.
	keyValue = regexp.MustCompile(`^\s*[a-zA-Z_]+\s*=`)
	// noScheme matches a URL that lacks its scheme (//user:secret@host/db, :secret@host/db).
	noScheme = regexp.MustCompile(`^\s*(//|:[^/]*@)`)
)

// A DSNError says what is wrong with the form of a DSN, which is a mistake in a setting.
type DSNError struct {
	Problem string // fit to be shown
}

// Error reads like: ledger: DSN is empty: want a path, sqlite:PATH or postgres://...
func (e *DSNError) Error() string { return "ledger: " + e.Problem }

func wrong(format string, args ...any) error {
	return &DSNError{Problem: fmt.Sprintf(format, args...)}
}

// parseDSN tells the kinds of DSN apart. No error of it shows a password: what
// cannot be read as a URL is not shown at all, as nothing says where its
// password begins.
func parseDSN(dsn string) (source, error) {
	if strings.TrimSpace(dsn) == "" {
		return source{}, wrong("DSN is empty: want %s", wantDSN)
	}
	have := scheme.FindStringSubmatch(dsn)
	switch {
	case keyValue.MatchString(dsn):
		return source{}, wrong("DSN: want %s, have libpq's form key=value", wantDSN)
	case noScheme.MatchString(dsn):
		return source{}, wrong("DSN: want %s, have a URL without its scheme", wantDSN)
	case have == nil:
		return parseSQLite(dsn, dsn)
	}
	switch strings.ToLower(have[1]) {
	case "sqlite":
		return parseSQLite(dsn, strings.TrimPrefix(dsn[len(have[0]):], "//"))
	case "postgres", "postgresql":
		return parsePostgres(dsn)
	default:
		return source{}, wrong("DSN scheme: want %s, have %q", wantDSN, have[0])
	}
}

const wantDSN = "a path, sqlite:PATH or postgres://..."

func parseSQLite(dsn, rest string) (source, error) {
	path, query, _ := strings.Cut(rest, "?")
	if path == "" || path == ":memory:" {
		return source{}, wrong("DSN %q: want the path of a file, which several connections can share", dsn)
	}
	return source{name: dsn, dialect: sqlfence.SQLite, path: path, query: query}, nil
}

// sqliteURI returns the driver's name of the file, to be opened with parameters
// and with what the DSN adds to them.
func (s source) sqliteURI(parameters string) string {
	// The path is escaped, so that one with % or # in it comes through.
	uri := "file:" + (&url.URL{Path: s.path}).EscapedPath() +
		"?_journal_mode=WAL&_synchronous=NORMAL&_error_rc=1&" + parameters
	if s.query != "" {
		uri += "&" + s.query
	}
	return uri
}

func parsePostgres(dsn string) (source, error) {
	u, err := url.Parse(dsn)
	var query url.Values
	if err == nil {
		query, err = url.ParseQuery(u.RawQuery)
	}
	if err != nil || !areHosts(u.Host) {
		return source{}, wrong("DSN postgres:...: want a URL such as postgres://user@host/database (special characters in a password as %%XX)")
	}
	s := source{dialect: sqlfence.PostgreSQL, url: dsn}
	if password, ok := u.User.Password(); ok {
		s.secrets = append(s.secrets, password, url.QueryEscape(password), url.PathEscape(password))
	}
	for key, values := range query {
		if strings.Contains(strings.ToLower(key), "password") {
			s.secrets = append(s.secrets, values...)
			query.Set(key, "xxxxx")
		}
	}
	// The driver may show a password as it was written, with escapes.
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		key, value, _ := strings.Cut(pair, "=")
		if key, err := url.QueryUnescape(key); err == nil && strings.Contains(strings.ToLower(key), "password") {
			s.secrets = append(s.secrets, value)
		}
	}
	u.RawQuery = query.Encode()
	s.name = u.Redacted()
	return s, nil
}

// areHosts reports whether all of a comma-separated list are hosts, with a port or
// without. The parser of URLs takes user:password:5432, where the host is forgotten,
// for a host, and user:password,x:5432 for two hosts. The password would be shown.
func areHosts(list string) bool {
	for host := range strings.SplitSeq(list, ",") {
		if !hostAndPort.MatchString(host) {
			return false
		}
	}
	return true
}

// hostAndPort matches a host or an address, with a port or without.
var hostAndPort = regexp.MustCompile(`^([^:\[\]]+|\[[^\[\]]+\])?(:[0-9]+)?$`)

// redact takes the passwords out of a text of the driver.
func (s source) redact(text string) string {
	for _, secret := range s.secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "xxxxx")
		}
	}
	return cmp.Or(text, "unknown error")
}
