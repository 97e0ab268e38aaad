package ledger_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/pgtest"
	"github.com/sidingq/siding/tasks/ledger"
)

// TestOpenRefuses tries databases that cannot serve. Each error has to say which
// one, and what is wrong with it, and no password.
func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	here := func(name string) string { return filepath.Join(folder, name) }
	expect.OK(t, os.WriteFile(here("letter.txt"), []byte(strings.Repeat("Dear Sir or Madam, ", 100)), 0o600))
	expect.OK(t, open(t, here("good.db")).Close())
	newer := open(t, here("newer.db"))
	execSQLite(t, here("newer.db"), "UPDATE ledger_meta SET version = 3")
	expect.OK(t, newer.Close())

	tests := []struct {
		name, dsn string
		want      []string // parts of the error
	}{
		{"nothing", " ", []string{`DSN " ": want the path of a file`}},
		{"other scheme", "mysql://root:hunter2@host/db", []string{`DSN scheme: want a path, sqlite:PATH or postgres://..., have "mysql:"`}},
		{"other scheme without slashes", "oracle:hunter2", []string{`have "oracle:"`}},
		{"libpq's form", "host=db user=ann password=hunter2", []string{"ledger: DSN: want a path, sqlite:PATH or postgres://..., have neither"}},
		{"libpq's form with blanks", " password = hunter2", []string{"have neither"}},
		{"neither scheme nor user", ":hunter2@host/db", []string{"have neither"}},
		{"no scheme, parameter", "db?password=hunter2", []string{"have neither"}},
		{"no path", "sqlite:", []string{`ledger: DSN "sqlite:": want the path of a file`}},
		{"memory", "sqlite::memory:", []string{"want the path of a file, which several connections can share"}},
		{"missing folder", here("no/such/ledger.db"), []string{here("no/such/ledger.db"), here("no/such") + ": no such file or directory"}},
		{"folder", folder, []string{folder, "unable to open database file"}},
		{"not a database", here("letter.txt"), []string{here("letter.txt"), "file is not a database"}},
		{"read-only", "sqlite:" + here("good.db") + "?mode=ro", []string{"good.db?mode=ro", "readonly database"}},
		{"immutable", "sqlite:" + here("good.db") + "?immutable=1", []string{"good.db?immutable=1", "readonly database"}},
		{"read-only and missing", "sqlite:" + here("none.db") + "?mode=ro", []string{"none.db", "unable to open database file"}},
		{"full", "sqlite:" + here("full.db") + "?_pragma=max_page_count(2)", []string{"full.db", "database or disk is full"}},
		{"newer", here("newer.db"), []string{"newer.db", "want version 2, have 3"}},

		{"bad URL", "postgres://ann:hunter2@host:port/db", []string{"want a URL such as postgres://user@host/database"}},
		{"bad password", "postgres://ann:hun%zzter2@host/db", []string{"want a URL such as postgres://user@host/database"}},
		{"password with a question mark", "postgres://shop:7/hunter2?x=y@db/ledger", []string{"want a URL such as"}},
		{"password behind an at", "postgres://ann@hunter2@host/db", []string{"want a URL such as"}},
		{
			"nobody there", "postgres://ann:hunter2@127.0.0.1:1/shop?connect_timeout=2",
			[]string{"ledger postgres://ann@127.0.0.1:1/shop", "connect"},
		},
		{
			"nobody there, password behind", "postgresql://ann@127.0.0.1:1/shop?connect_timeout=2&password=hunter2",
			[]string{"postgresql://ann@127.0.0.1:1/shop", "connect"},
		},
		{"bad parameter", "postgres://ann:hunter2@host/db?sslmode=maybe", []string{`ledger: DSN "postgres://ann@host/db": sslmode`}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l, err := create(t.Context(), test.dsn)
			if err == nil {
				_ = l.Close()
				t.Fatal("want an error, have none")
			}
			for _, want := range test.want {
				expect.That(t, strings.Contains(err.Error(), want), "want %q in the error, have %v", want, err)
			}
			expect.That(t, !strings.Contains(err.Error(), "hunter2") && !strings.Contains(err.Error(), "zzter2"), "want no password shown, have %v", err)
		})
	}
}

// TestOpenPostgresRefuses is TestOpenRefuses for what takes a server.
func TestOpenPostgresRefuses(t *testing.T) {
	t.Parallel()
	good := expect.Value(url.Parse(pgtest.DSN(t)))(t)
	missing, readOnly := *good, *good
	missing.Path = "/nosuch"
	query := good.Query()
	query.Set("default_transaction_read_only", "on")
	readOnly.RawQuery = query.Encode()
	for want, dsn := range map[string]url.URL{"does not exist": missing, "read-only transaction": readOnly} {
		l, err := create(t.Context(), dsn.String())
		if err == nil {
			_ = l.Close()
			t.Errorf("%s: want an error, have none", want)
			continue
		}
		expect.That(t, strings.Contains(err.Error(), want) && strings.Contains(err.Error(), "ledger postgres://"), "want the DSN and %q, have %v", want, err)
	}
}

// TestPathsComeThrough: characters that mean something in a URL mean nothing in
// the name of a file.
func TestPathsComeThrough(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"", "sqlite:", "sqlite://"} {
		path := filepath.Join(t.TempDir(), "50% off #1 & more.db")
		expect.OK(t, expect.Value(ledger.Open(prefix+path))(t).Close())
		expect.Is(t, prefix+": the file before the tables", expect.Err(os.Stat(path)), os.ErrNotExist)
		expect.OK(t, open(t, prefix+path).Close())
		expect.Is(t, prefix, expect.Err(os.Stat(path)), nil)
	}
}

// TestOpenTogether starts several processes' worth of ledgers on a database that
// is not there yet.
func TestOpenTogether(t *testing.T) {
	t.Parallel()
	for name, dsn := range backends() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := dsn(t)
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					l, err := create(t.Context(), dsn)
					if err != nil {
						t.Error(err)
						return
					}
					expect.Is(t, "close", l.Close(), nil)
				})
			}
			wg.Wait()
		})
	}
}

// deductOne is the n-th of several tasks.
func deductOne(ctx context.Context, l *ledger.Ledger, n int) error {
	ctx = fenced(ctx, int64(n)+1)
	s, err := readStock(ctx, l, "85123A", 0)
	if err != nil {
		return err
	}
	s.BackOrdered++
	return l.Write(ctx, &s, deduction(fmt.Sprintf("task %d", n)))
}

// TestLockedFile: somebody keeps a transaction open on the file.
func TestLockedFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger.db")
	l := open(t, path)
	other := expect.Value(sql.Open("sqlite", "file:"+path+"?_txlock=immediate"))(t)
	defer func() { _ = other.Close() }()
	tx, err := other.BeginTx(t.Context(), nil)
	expect.OK(t, err)

	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err = deductOne(ctx, l, 1)
	expect.That(t, errors.Is(err, context.DeadlineExceeded) && strings.Contains(err.Error(), "database is locked") && strings.Contains(err.Error(), path), "want the deadline, its reason and the file, have %v", err)

	done := make(chan error, 1)
	go func() { done <- deductOne(t.Context(), l, 1) }()
	select {
	case err := <-done:
		t.Fatalf("want it to wait, have %v", err)
	case <-time.After(30 * time.Millisecond): //nolint:forbidigo // something must not happen
	}
	expect.OK(t, tx.Rollback())
	expect.OK(t, <-done)
}

func execSQLite(t *testing.T, path, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	expect.OK(t, err)
	defer func() { _ = db.Close() }()
	_, err = db.ExecContext(t.Context(), statement)
	expect.OK(t, err)
}
