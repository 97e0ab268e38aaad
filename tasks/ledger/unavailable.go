package ledger

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// ErrUnavailable is wrapped by errors that are no fault of the step. The database cannot be
// reached, or takes no writes, for example on a full disk; see [Ledger.Writable].
var ErrUnavailable = errors.New("the database is not available")

// isUnavailable reports whether err says that no step can be taken, rather than this one.
func isUnavailable(err error) bool {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return slices.Contains([]int{
			sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_NOMEM,
			sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL,
		}, e.Code()&0xff) // without the detail that extended codes add
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		// Connections, authorization, resources, operators, the system; and a replica. One statement
		// that was canceled, as by its own timeout, says nothing about others.
		return slices.Contains([]string{"08", "28", "53", "57", "58"}, e.Code[:min(2, len(e.Code))]) && e.Code != "57014" || e.Code == "25006"
	}
	_, connect := errors.AsType[*pgconn.ConnectError](err)
	_, network := errors.AsType[net.Error](err)
	// A server that is killed ends its connections in the middle of an answer.
	return connect || network || errors.Is(err, driver.ErrBadConn) || errors.Is(err, io.ErrUnexpectedEOF)
}

// isBusy reports whether err says that another process is writing to the file.
func isBusy(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && e.Code()&0xff == sqlite3.SQLITE_BUSY
}

// Writable returns why the database takes no steps, nil when it does. Writable writes some pages,
// more than a task does, and removes them in a second transaction.
func (l *Ledger) Writable(ctx context.Context) error {
	filler := make([]byte, 16<<10)
	_, _ = rand.Read(filler) // never fails; a database would compress what repeats
	for _, text := range []string{hex.EncodeToString(filler), ""} {
		err := l.inTx(ctx, "test write", func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO ledger_room (id, filler) VALUES (1, $1) ON CONFLICT (id) DO UPDATE SET filler = excluded.filler", text)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
