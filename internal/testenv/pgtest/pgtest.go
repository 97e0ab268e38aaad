// Package pgtest runs real PostgreSQL servers for tests and benchmarks. Package proc says how
// they end, and what happens without PostgreSQL.
package pgtest

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/sidingq/siding/internal/testenv/proc"
)

// superuser is the server's, and the account that runs the server if we are root:
// PostgreSQL refuses to run as root.
const superuser = "postgres"

// A Server is a PostgreSQL server. The server listens on a socket in its folder, so that servers
// never meet. It does not wait for disks, so its data does not survive the machine.
type Server struct {
	*proc.Server

	databases atomic.Int64
}

// Run starts a server without data, which the caller must Stop.
func Run(ctx context.Context) (*Server, error) {
	initdb, err := proc.Look("postgresql", "initdb", "/usr/lib/postgresql/*/bin/initdb") // where Debian has it
	if err != nil {
		return nil, err
	}
	p, err := proc.New(filepath.Join(filepath.Dir(initdb), "postgres"))
	if err != nil {
		return nil, err
	}
	s := &Server{Server: p}
	data := filepath.Join(s.Dir, "data")
	s.Account, s.Ready = superuser, s.answers
	s.Quit = syscall.SIGQUIT // at once, with its own children
	// -F is no fsync.
	s.Args = []string{"-D", data, "-k", s.Dir, "-c", "listen_addresses=", "-F"}
	if err = s.initialize(ctx, initdb, data); err == nil {
		err = s.Start(ctx)
	}
	if err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

func (s *Server) initialize(ctx context.Context, initdb, data string) error {
	cmd, err := s.Command(ctx, initdb, "-D", data, "-U", superuser, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	if err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return nil
}

// answers returns nil when the server answers.
func (s *Server) answers(ctx context.Context) error {
	return s.do(func(db *sql.DB) error { return db.PingContext(ctx) })
}

// CreateDatabase creates an empty database and returns its URL.
func (s *Server) CreateDatabase(ctx context.Context) (string, error) {
	name := fmt.Sprintf("db%d", s.databases.Add(1))
	return s.url(name), s.do(func(db *sql.DB) error {
		_, err := db.ExecContext(ctx, "CREATE DATABASE "+name)
		return err
	})
}

// do calls f with a connection of the superuser.
func (s *Server) do(f func(*sql.DB) error) error {
	db, err := sql.Open("pgx", s.url(superuser))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	return f(db)
}

func (s *Server) url(database string) string {
	query := url.Values{"host": {s.Dir}, "user": {superuser}}
	return "postgres:///" + database + "?" + query.Encode()
}

// shared is state of the package, as the tests of a process share it.
var shared proc.Shared[*Server]

// DSN creates an empty database for a test and returns its URL, for pgx. The tests of this
// process share the server.
func DSN(tb testing.TB) string {
	tb.Helper()
	dsn, err := shared.Use(tb, func() (*Server, error) { return Run(tb.Context()) }).CreateDatabase(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return dsn
}
