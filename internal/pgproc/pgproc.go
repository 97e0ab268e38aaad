// Package pgproc runs PostgreSQL servers with an empty data folder of their own.
package pgproc

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
)

const (
	// superuser is the server's, and the account that runs it where we are
	// root, which PostgreSQL refuses to be run by.
	superuser = "postgres"
	// startTimeout is long, as several servers may be started at once.
	startTimeout = 30 * time.Second
)

// ErrMissing says that PostgreSQL is not installed.
var ErrMissing = errors.New("no PostgreSQL server: initdb is neither in PATH nor in /usr/lib/postgresql; on Debian: apt-get install postgresql")

// A Server is a running PostgreSQL server. It listens on a socket in a folder of
// its own, so that servers never meet, and does not wait for disks: its data do
// not survive the machine.
type Server struct {
	folder    string
	stop      func()
	databases int
}

// Start starts a server, or returns [ErrMissing]. ctx bounds the start only.
func Start(ctx context.Context) (*Server, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "pg") // the path of a socket must be short
	if err != nil {
		return nil, err
	}
	s := &Server{folder: folder, stop: func() { _ = os.RemoveAll(folder) }}
	if err := s.start(ctx, bin); err != nil {
		s.stop()
		return nil, fmt.Errorf("start a PostgreSQL: %w", err)
	}
	return s, nil
}

func (s *Server) start(ctx context.Context, bin string) error {
	account, err := accountFor(s.folder)
	if err != nil {
		return err
	}
	data := filepath.Join(s.folder, "data")
	initdb := command(ctx, account, filepath.Join(bin, "initdb"), "-D", data, "-U", superuser,
		"-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	logs, err := os.Create(filepath.Join(s.folder, "log"))
	if err != nil {
		return err
	}
	remove := s.stop
	s.stop = func() {
		_ = logs.Close()
		remove()
	}
	// -F is no fsync.
	cmd := command(context.WithoutCancel(ctx), account, filepath.Join(bin, "postgres"), "-D", data,
		"-k", s.folder, "-c", "listen_addresses=", "-F")
	cmd.Stdout, cmd.Stderr = logs, logs
	end, err := launch(cmd)
	if err != nil {
		return err
	}
	closed := s.stop
	s.stop = func() {
		end()
		closed()
	}
	return s.await(ctx)
}

// Stop ends the server at once and removes its data.
func (s *Server) Stop() { s.stop() }

// CreateDatabase creates an empty database and returns its URL. One goroutine at
// a time may call it.
func (s *Server) CreateDatabase(ctx context.Context) (string, error) {
	db, err := sql.Open("pgx", s.url(superuser))
	if err != nil {
		return "", err
	}
	defer func() { _ = db.Close() }()
	s.databases++
	name := fmt.Sprintf("db%d", s.databases)
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
	query := url.Values{"host": {s.folder}, "user": {superuser}}
	return "postgres:///" + database + "?" + query.Encode()
}

// await returns when the server answers.
func (s *Server) await(ctx context.Context) error {
	db, err := sql.Open("pgx", s.url(superuser))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for start := time.Now(); ; <-tick.C {
		if err = db.PingContext(ctx); err == nil {
			return nil
		}
		if ctx.Err() != nil || time.Since(start) > startTimeout {
			logs, _ := os.ReadFile(filepath.Join(s.folder, "log"))
			return fmt.Errorf("no answer: %w\n%s", err, logs)
		}
	}
}

// binaries returns the folder of the newest server that is installed. Debian
// keeps them out of the PATH.
func binaries() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path), nil
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		return "", ErrMissing
	}
	version := func(path string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
		return n
	}
	newest := slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })
	return filepath.Dir(newest), nil
}

// accountFor returns the account to run the server as, and gives it the folder;
// nil means the current one.
func accountFor(folder string) (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil //nolint:nilnil // no credential is the answer
	}
	u, err := user.Lookup(superuser)
	if err != nil {
		return nil, err
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user %s: uid: %w", superuser, err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user %s: gid: %w", superuser, err)
	}
	if err := os.Chown(folder, int(uid), int(gid)); err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// launch starts cmd and returns what ends it and waits for that.
func launch(cmd *exec.Cmd) (end func(), err error) {
	started, exited := make(chan error), make(chan struct{})
	go func() {
		defer close(exited)
		// Linux ends the child with the thread that started it. A locked
		// goroutine keeps its thread, and lives until the child is gone.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // ended by a signal
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return func() {
		_ = cmd.Process.Signal(syscall.SIGQUIT) // at once, with its own children
		<-exited
	}, nil
}

func command(ctx context.Context, account *syscall.Credential, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = "/" // one that any account may be in
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.SysProcAttr = dieWithParent()
	cmd.SysProcAttr.Credential = account
	return cmd
}
