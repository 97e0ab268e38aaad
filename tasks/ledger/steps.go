package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/sqlfence"
)

// A table has rows that tasks read and later write back. The lock of a row is named by the row's
// key behind a prefix.
type table struct {
	prefix, name, key    string
	insert, read, update string // statements, whose first parameter is the row's key
}

func newTable(prefix, name, key string, columns ...string) table {
	var values, sets []string
	for i, column := range columns {
		values = append(values, fmt.Sprintf("$%d", i+2))
		sets = append(sets, fmt.Sprintf("%s = $%d", column, i+2))
	}
	list := strings.Join(columns, ", ")
	return table{
		prefix: prefix, name: name, key: key,
		insert: fmt.Sprintf("INSERT INTO %s (%s, %s) VALUES ($1, %s)", name, key, list, strings.Join(values, ", ")),
		read:   fmt.Sprintf("SELECT %s FROM %s WHERE %s = $1", list, name, key),
		update: fmt.Sprintf("UPDATE %s SET %s WHERE %s = $1", name, strings.Join(sets, ", "), key),
	}
}

// A row is one row of a table, with pointers to its values.
type row struct {
	table
	id     string
	values []any
}

func (r row) args() []any { return append([]any{r.id}, r.values...) }

// advance has the row accept the fence of its lock.
func (l *Ledger) advance(ctx context.Context, tx *sql.Tx, r row) error {
	fenced := sqlfence.Table{Name: r.name, Key: []string{r.key}, Dialect: l.dialect}
	return fenced.Advance(ctx, tx, lock.Fence(ctx, r.prefix+r.id), r.id)
}

// read does what Read does. more, if not nil, reads further in the same transaction.
func (l *Ledger) read(ctx context.Context, what Row, more func(context.Context, *sql.Tx) error) error {
	r := what.row()
	return l.inTx(ctx, fmt.Sprintf("read %s %q", r.name, r.id), func(ctx context.Context, tx *sql.Tx) error {
		err := l.advance(ctx, tx, r)
		if errors.Is(err, sqlfence.ErrNoRow) {
			if _, err := tx.ExecContext(ctx, r.insert+" ON CONFLICT DO NOTHING", r.args()...); err != nil {
				return err
			}
			err = l.advance(ctx, tx, r)
		}
		if err == nil {
			err = tx.QueryRowContext(ctx, r.table.read, r.id).Scan(r.values...)
		}
		if err == nil && more != nil {
			err = more(ctx, tx)
		}
		return err
	})
}

// write does what Write does, unless a later holder has been there or the journal has e. The journal
// keeps the new row. more, if not nil, writes further in the same transaction.
func (l *Ledger) write(ctx context.Context, what Row, e Effect, more func(context.Context, *sql.Tx) error) error {
	r := what.row()
	err := l.inTx(ctx, fmt.Sprintf("write %s %q", r.name, r.id), func(ctx context.Context, tx *sql.Tx) error {
		err := l.advance(ctx, tx, r)
		if err == nil {
			err = record(ctx, tx, e, what)
		}
		if err == nil {
			_, err = tx.ExecContext(ctx, r.update, r.args()...)
		}
		if err == nil && more != nil {
			err = more(ctx, tx)
		}
		return err
	})
	if errors.Is(err, errRecorded) {
		return nil
	}
	return err
}

// ErrTaskID says that a task has no id, or that the effect of another task is journaled under its
// id. To treat the second as done would lose it.
var ErrTaskID = errors.New("the id does not identify the task")

// errRecorded rolls back a transaction whose effect is in the journal already.
var errRecorded = errors.New("the effect is recorded already")

// An Effect is what the journal keeps of a task, besides what it changed.
type Effect struct {
	// TaskID is the task's id, the same for all its attempts.
	TaskID string
	// Kind is the task's kind, and Subject its resource.
	Kind, Subject string
	// Order, Line and SKU say where the effect comes from, if they apply.
	Order string
	Line  int
	SKU   string
	// Quantity and Amount are those of the task.
	Quantity, Amount int64
}

// record writes e to the journal. The error is errRecorded if e is there.
func record(ctx context.Context, tx *sql.Tx, e Effect, after Row) error {
	if e.TaskID == "" {
		return fmt.Errorf("%w: %s on %s has none", ErrTaskID, e.Kind, e.Subject)
	}
	text, err := json.Marshal(after)
	if err != nil {
		return err
	}
	const insert = `INSERT INTO journal (task_id, kind, subject, fence, order_no, line, sku, quantity, amount, row_after, recorded_ms)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT DO NOTHING`
	result, err := tx.ExecContext(ctx, insert, e.TaskID, e.Kind, e.Subject, lock.Fence(ctx, e.Subject), e.Order, e.Line, e.SKU,
		e.Quantity, e.Amount, string(text), time.Now().UnixMilli())
	if err != nil {
		return err
	}
	if rows, err := result.RowsAffected(); err != nil || rows == 1 {
		return err
	}
	there := Effect{TaskID: e.TaskID}
	err = tx.QueryRowContext(ctx, "SELECT kind, subject, order_no, line, sku, quantity, amount FROM journal WHERE task_id = $1", e.TaskID).
		Scan(&there.Kind, &there.Subject, &there.Order, &there.Line, &there.SKU, &there.Quantity, &there.Amount)
	if err != nil {
		return err
	}
	if there != e {
		return fmt.Errorf("%w: %s is the id of %s on %s already, wanted for %s on %s", ErrTaskID, e.TaskID, there.Kind, there.Subject, e.Kind, e.Subject)
	}
	return errRecorded
}
