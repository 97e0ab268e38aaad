// Package pgtest starts real PostgreSQL servers for tests.
package pgtest

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
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
)

const (
	// superuser is the server's, and the account that runs it where the tests
	// run as root, which PostgreSQL refuses to be run by.
	superuser = "postgres"
	// startTimeout is long, as several packages may start servers at once.
	startTimeout = 30 * time.Second
)

// shared is the server of this test process, with the number of tests that use
// it now. This is state of a package, against the habit: the test process is
// what the server is shared in.
var shared struct {
	sync.Mutex
	*server
	users     int
	databases int
}

// DSN creates an empty database for tb and returns its URL, to be opened with
// pgx. It starts a server for the first of the tests that use one at the same
// time, and ends it after the last. It skips the test where PostgreSQL is not
// installed, and fails it there if CI is set.
func DSN(tb testing.TB) string {
	tb.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.users == 0 {
		shared.server = start(tb)
	}
	shared.users++
	tb.Cleanup(func() {
		shared.Lock()
		defer shared.Unlock()
		if shared.users--; shared.users == 0 {
			shared.stop()
		}
	})

	db, err := sql.Open("pgx", shared.url(superuser))
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	defer func() { _ = db.Close() }()
	shared.databases++
	name := fmt.Sprintf("test%d", shared.databases)
	if _, err := db.ExecContext(tb.Context(), "CREATE DATABASE "+name); err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	return shared.url(name)
}

// A server is a running PostgreSQL server with an empty data folder of its own.
// It listens on a socket in that folder, so that servers never meet.
type server struct {
	folder string
	stop   func()
}

// start starts a server; tb is the first test that uses it.
func start(tb testing.TB) *server {
	tb.Helper()
	bin, err := binaries()
	if err != nil {
		if os.Getenv("CI") != "" {
			tb.Fatalf("pgtest: %v", err)
		}
		tb.Skipf("pgtest: %v; on Debian: apt-get install postgresql", err)
	}
	// Not tb.TempDir: it goes with the first test, its parent is closed to other
	// users, and the path of a socket must be short.
	folder, err := os.MkdirTemp("", "pgtest") //nolint:usetesting // see above
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	s := &server{folder: folder, stop: func() { _ = os.RemoveAll(folder) }}
	running := false
	defer func() {
		if !running {
			s.stop()
		}
	}()
	account, err := accountFor(folder)
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}

	data := filepath.Join(folder, "data")
	run(tb, account, filepath.Join(bin, "initdb"), "-D", data, "-U", superuser,
		"-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	logs, err := os.Create(filepath.Join(folder, "log"))
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	// Durability is not what is tested: -F is no fsync.
	cmd := command(context.Background(), account, filepath.Join(bin, "postgres"), "-D", data,
		"-k", folder, "-c", "listen_addresses=", "-F")
	cmd.Stdout, cmd.Stderr = logs, logs
	end, err := launch(cmd)
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	s.stop = func() {
		end()
		_ = logs.Close()
		_ = os.RemoveAll(folder)
	}
	s.await(tb)
	running = true
	return s
}

func (s *server) url(database string) string {
	query := url.Values{"host": {s.folder}, "user": {superuser}}
	return "postgres:///" + database + "?" + query.Encode()
}

// await returns when the server answers.
func (s *server) await(tb testing.TB) {
	tb.Helper()
	db, err := sql.Open("pgx", s.url(superuser))
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	defer func() { _ = db.Close() }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for start := time.Now(); ; <-tick.C {
		if err = db.PingContext(tb.Context()); err == nil {
			return
		}
		if time.Since(start) > startTimeout {
			logs, _ := os.ReadFile(filepath.Join(s.folder, "log"))
			tb.Fatalf("pgtest: no answer within %v: %v\n%s", startTimeout, err, logs)
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
		return "", errors.New("no PostgreSQL server: initdb is neither in PATH nor in /usr/lib/postgresql")
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

func run(tb testing.TB, account *syscall.Credential, name string, args ...string) {
	tb.Helper()
	if out, err := command(tb.Context(), account, name, args...).CombinedOutput(); err != nil {
		tb.Fatalf("pgtest: %s: %v\n%s", filepath.Base(name), err, out)
	}
}
