// Package pgtest runs real PostgreSQL servers for tests and benchmarks. See package
// proc for how they end, and what happens where PostgreSQL is missing.
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

// superuser is the server's, and the account that runs it where we are root, which
// PostgreSQL refuses to be run by.
const superuser = "postgres"

// What initializes a server, in PATH or where Debian has it, and what to install for it.
const (
	initdb        = "initdb"
	debianInitdb  = "/usr/lib/postgresql/*/bin/initdb"
	debianPackage = "postgresql"
)

// A Server is a PostgreSQL server. It listens on a socket in its folder, so that
// servers never meet, and does not wait for disks: its data do not survive the machine.
type Server struct {
	*proc.Server

	databases atomic.Int64
}

// Run starts a server without data, which the caller must Stop.
func Run(ctx context.Context) (*Server, error) {
	initdb, err := proc.Look(debianPackage, initdb, debianInitdb)
	if err != nil {
		return nil, err
	}
	return run(ctx, initdb)
}

func run(ctx context.Context, initdb string) (*Server, error) {
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
	db, err := sql.Open("pgx", s.url(superuser))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	return db.PingContext(ctx)
}

// CreateDatabase creates an empty database and returns its URL.
func (s *Server) CreateDatabase(ctx context.Context) (string, error) {
	db, err := sql.Open("pgx", s.url(superuser))
	if err != nil {
		return "", err
	}
	defer func() { _ = db.Close() }()
	name := fmt.Sprintf("db%d", s.databases.Add(1))
	if _, err := db.ExecContext(ctx, "CREATE DATABASE "+name); err != nil {
		return "", err
	}
	return s.url(name), nil
}

// Version returns that of the server, such as "15.18".
func (s *Server) Version(ctx context.Context) (string, error) {
	db, err := sql.Open("pgx", s.url(superuser))
	if err != nil {
		return "", err
	}
	defer func() { _ = db.Close() }()
	var text string
	err = db.QueryRowContext(ctx, "SELECT split_part(current_setting('server_version'), ' ', 1)").Scan(&text)
	return text, err
}

func (s *Server) url(database string) string {
	query := url.Values{"host": {s.Dir}, "user": {superuser}}
	return "postgres:///" + database + "?" + query.Encode()
}

// shared is state of a package, against the habit: the test process is what the
// server is shared in.
var shared proc.Shared[*Server]

// DSN creates an empty database for tb and returns its URL, to be opened with pgx.
// It is on a server that the tests of this process share.
func DSN(tb testing.TB) string {
	tb.Helper()
	server := shared.Use(tb, func() *Server {
		s, err := run(tb.Context(), proc.Find(tb, debianPackage, initdb, debianInitdb))
		if err != nil {
			tb.Fatal(err)
		}
		return s
	})
	dsn, err := server.CreateDatabase(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return dsn
}
