package ledger

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"net"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// ErrUnavailable is wrapped by errors that are no fault of the step: the database cannot be
// reached, or takes no writes. Its disk is full, say, or it is read-only. The step has not
// happened, and no other will until that is mended; see [Ledger.Writable].
var ErrUnavailable = errors.New("ledger: the database takes no writes")

// An unavailableError is an error of the database that wraps [ErrUnavailable].
type unavailableError struct{ error }

func (e unavailableError) Unwrap() []error { return []error{e.error, ErrUnavailable} }

// isUnavailable reports whether err says that no step can be taken, rather than this one.
func isUnavailable(err error) bool {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return slices.Contains([]int{
			sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_NOMEM,
			sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL,
		}, e.Code()&0xff)
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		// Connections, authorization, resources, operators, the system; and a replica.
		return slices.Contains([]string{"08", "28", "53", "57", "58"}, e.Code[:min(2, len(e.Code))]) || e.Code == "25006"
	}
	_, connect := errors.AsType[*pgconn.ConnectError](err)
	_, network := errors.AsType[net.Error](err)
	return connect || network || errors.Is(err, driver.ErrBadConn)
}

// room is how many bytes Writable writes: more than a task does.
const room = 32 << 10

// Writable says why steps cannot be taken, nil when they can: it writes some pages and gives
// them back, in two transactions.
func (l *Ledger) Writable(ctx context.Context) error {
	filler := make([]byte, room/2)
	_, _ = rand.Read(filler) // never fails; a database would compress what repeats
	for _, text := range []string{hex.EncodeToString(filler), ""} {
		const doing = "test write"
		err := l.inTx(ctx, doing, func(ctx context.Context, tx *sql.Tx) error {
			const upsert = "INSERT INTO ledger_room (id, filler) VALUES (1, ?1) ON CONFLICT (id) DO UPDATE SET filler = excluded.filler"
			if _, err := tx.ExecContext(ctx, rebind(l.dialect, upsert), text); err != nil {
				return l.explain(ctx, doing, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
