package sqlfence_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/proc"
)

// account runs the server of MariaDB if we are root. Debian's package makes the account.
const account = "mysql"

// A mariaDB is a real server for tests. Package proc says how it ends, and what happens without MariaDB. The server listens on a socket in its folder, so that servers
// never meet. It does not wait for disks, so its data does not survive the machine.
type mariaDB struct {
	*proc.Server

	databases atomic.Int64
}

// runMariaDB starts a server without data, which the caller must Stop.
func runMariaDB(ctx context.Context) (*mariaDB, error) {
	const debianPackage = "mariadb-server"
	program, err := proc.Look(debianPackage, "mariadbd", "/usr/sbin/mariadbd") // not in everybody's PATH
	if err != nil {
		return nil, err
	}
	install, err := proc.Look(debianPackage, "mariadb-install-db")
	if err != nil {
		return nil, err
	}
	p, err := proc.New(program)
	if err != nil {
		return nil, err
	}
	s := &mariaDB{Server: p}
	data := filepath.Join(s.Dir, "data")
	s.Account, s.Ready = account, s.answers
	s.Args = []string{
		"--no-defaults", "--datadir=" + data, "--socket=" + s.socket(), "--pid-file=" + filepath.Join(s.Dir, "pid"),
		"--skip-networking", "--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=32M",
	}
	if err = s.initialize(ctx, install, data); err == nil {
		err = s.Start(ctx)
	}
	if err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

func (s *mariaDB) initialize(ctx context.Context, install, data string) error {
	cmd, err := s.Command(ctx, install, "--no-defaults", "--datadir="+data, "--auth-root-authentication-method=normal", "--skip-test-db")
	if err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mariadb-install-db: %w\n%s", err, out)
	}
	return nil
}

// answers returns nil when the server answers.
func (s *mariaDB) answers(ctx context.Context) error {
	return s.do(func(db *sql.DB) error { return db.PingContext(ctx) })
}

// createDatabase creates an empty database and returns how to connect to it.
func (s *mariaDB) createDatabase(ctx context.Context) (*mysql.Config, error) {
	name := fmt.Sprintf("db%d", s.databases.Add(1))
	return s.config(name), s.do(func(db *sql.DB) error {
		_, err := db.ExecContext(ctx, "CREATE DATABASE "+name)
		return err
	})
}

// do calls f with a connection of the superuser.
func (s *mariaDB) do(f func(*sql.DB) error) error {
	db, err := sql.Open("mysql", s.config("").FormatDSN())
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	return f(db)
}

func (s *mariaDB) socket() string { return filepath.Join(s.Dir, "socket") }

func (s *mariaDB) config(database string) *mysql.Config {
	config := mysql.NewConfig()
	config.User, config.Net, config.Addr, config.DBName = "root", "unix", s.socket(), database
	config.Logger = &mysql.NopLogger{} // errors say as much
	return config
}

// sharedMariaDB is state of the package, as the tests of a process share it.
var sharedMariaDB proc.Shared[*mariaDB]

// mysqlDatabase creates an empty database for a test, and returns how to connect to it. The tests of this
// process share the server.
func mysqlDatabase(tb testing.TB) *mysql.Config {
	tb.Helper()
	config := expect.Value(sharedMariaDB.Use(tb, func() (*mariaDB, error) { return runMariaDB(tb.Context()) }).createDatabase(tb.Context()))(tb)
	return config
}
