package ledger_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/tasks/ledger"
)

// Errors that no step could have avoided are told from errors of one step.
func TestErrorsOfAStep(t *testing.T) {
	t.Parallel()
	pg := func(code string) error { return fmt.Errorf("write: %w", &pgconn.PgError{Code: code}) }
	for name, tt := range map[string]struct {
		err  error
		want bool
	}{
		"disk full":             {pg("53100"), true},
		"too many clients":      {pg("53300"), true},
		"replica":               {pg("25006"), true},
		"shutdown":              {pg("57P01"), true},
		"starting":              {pg("57P03"), true},
		"password":              {pg("28P01"), true},
		"input or output":       {pg("58030"), true},
		"nobody there":          {&net.OpError{Op: "dial", Err: errors.New("connection refused")}, true},
		"connection gone":       {driver.ErrBadConn, true},
		"backend killed":        {fmt.Errorf("write: %w", io.ErrUnexpectedEOF), true},
		"time of a statement":   {pg("57014"), false},
		"deadlock":              {pg("40P01"), false},
		"serialization":         {pg("40001"), false},
		"check of a column":     {pg("23514"), false},
		"no such table":         {pg("42P01"), false},
		"another transaction":   {pg("25P02"), false},
		"no code":               {pg(""), false},
		"stale":                 {lock.ErrStale, false},
		"no fence":              {lock.ErrNoFence, false},
		"the end of a context":  {context.Canceled, false},
		"no row":                {sql.ErrNoRows, false},
		"id of two tasks":       {ledger.ErrTaskID, false},
		"something of our own":  {errors.New("bad amount"), false},
		"several, one of these": {errors.Join(errors.New("rollback"), pg("53100")), true},
	} {
		expect.Equal(t, name, ledger.IsUnavailable(tt.err), tt.want)
	}
}

// A file that cannot grow takes no steps, though what is in it could be changed. The ledger takes
// writes again once there is room.
func TestWritable(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "ledger.db")
	l := open(t, "sqlite:"+file+"?_pragma=max_page_count(200)")
	t.Cleanup(func() { expect.OK(t, l.Close()) })
	step := func(id string) error {
		ctx := locktest.WithFence(t.Context(), "account:"+id, 1)
		a := ledger.Account{Customer: id}
		if err := l.Read(ctx, &a); err != nil {
			return err
		}
		return l.Write(ctx, &a, ledger.Effect{TaskID: id, Kind: "test"})
	}
	expect.OK(t, l.Writable(t.Context()))
	expect.OK(t, step("before"))
	execSQLite(t, file, "CREATE TABLE others (data BLOB)")
	execSQLite(t, file, "INSERT INTO others VALUES (zeroblob(900000))")
	expect.Is(t, "writable", l.Writable(t.Context()), ledger.ErrUnavailable)
	var err error
	for i := 0; i < 1000 && err == nil; i++ { // until the last page is full
		err = step(fmt.Sprint("more-", i))
	}
	expect.Is(t, "step", err, ledger.ErrUnavailable)
	execSQLite(t, file, "DROP TABLE others")
	expect.OK(t, l.Writable(t.Context()))
	expect.OK(t, step("after"))

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Writable(ended); err == nil || errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("want the end of the context, have %v", err)
	}
}
