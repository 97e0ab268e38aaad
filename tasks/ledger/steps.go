package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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

// lock is the name of the row's lock.
func (r row) lock() string { return r.prefix + r.id }

func (r row) args() []any { return append([]any{r.id}, r.values...) }

// advance has the row accept the fence of its lock.
func (l *Ledger) advance(ctx context.Context, tx *sql.Tx, r row) error {
	fenced := sqlfence.Table{Name: r.name, Key: []string{r.key}, Dialect: l.dialect}
	return fenced.Advance(ctx, tx, lock.Fence(ctx, r.lock()), r.id)
}

// inOrder returns the rows in the order of their locks' names, in which every step goes through them. So no two
// transactions wait for each other, even when a lock has failed.
func inOrder(all []Row) []row {
	rows := make([]row, len(all))
	for i, r := range all {
		rows[i] = r.row()
	}
	slices.SortFunc(rows, func(a, b row) int { return strings.Compare(a.lock(), b.lock()) })
	return rows
}

// names names rows, for errors.
func names(rows []row) string {
	all := make([]string, len(rows))
	for i, r := range rows {
		all[i] = fmt.Sprintf("%s %q", r.name, r.id)
	}
	return strings.Join(all, ", ")
}

// read does what Read does. more, if not nil, reads further in the same transaction.
func (l *Ledger) read(ctx context.Context, all []Row, more func(context.Context, *sql.Tx) error) error {
	rows := inOrder(all)
	return l.inTx(ctx, "read "+names(rows), func(ctx context.Context, tx *sql.Tx) error {
		for _, r := range rows {
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
			if err != nil {
				return err
			}
		}
		if more != nil {
			return more(ctx, tx)
		}
		return nil
	})
}

// write does what WriteAll does, unless a later holder of one of the locks has been there or the journal has the
// changes. The journal keeps the new rows. more, if not nil, writes further in the same transaction.
func (l *Ledger) write(ctx context.Context, changes []Change, more func(context.Context, *sql.Tx) error) error {
	all := make([]Row, len(changes))
	for i, c := range changes {
		all[i] = c.Row
	}
	rows := inOrder(all)
	err := l.inTx(ctx, "write "+names(rows), func(ctx context.Context, tx *sql.Tx) error {
		for _, r := range rows {
			if err := l.advance(ctx, tx, r); err != nil {
				return err
			}
		}
		var recorded error
		for part, c := range changes {
			err := record(ctx, tx, part, c)
			if errors.Is(err, errRecorded) {
				recorded = err // if the other parts are the same, too
				continue
			}
			if err == nil {
				r := c.Row.row()
				_, err = tx.ExecContext(ctx, r.update, r.args()...)
			}
			if err != nil {
				return err
			}
		}
		if recorded == nil && more != nil {
			return more(ctx, tx)
		}
		return recorded
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

// A Change is a row to be stored, and what the journal keeps of it.
type Change struct {
	Row    Row
	Effect Effect
}

// An Effect is what the journal keeps of a task and a row, besides the row. It is the same in all
// attempts, whatever they decide.
type Effect struct {
	// TaskID is the task's id, the same for all its attempts.
	TaskID string
	// Kind is the task's kind.
	Kind string
	// subject is the resource of the row.
	subject string
	// Order, Line and SKU say where the effect comes from, if they apply.
	Order string
	Line  int
	SKU   string
	// Quantity and Amount are those of the task for this row.
	Quantity, Amount int64
}

// record writes one part of what a task changes to the journal. The error is errRecorded if it is there.
func record(ctx context.Context, tx *sql.Tx, part int, c Change) error {
	e := c.Effect
	e.subject = c.Row.row().lock()
	if e.TaskID == "" {
		return fmt.Errorf("%w: %s on %s has none", ErrTaskID, e.Kind, e.subject)
	}
	text, err := json.Marshal(c.Row)
	if err != nil {
		return err
	}
	const insert = `INSERT INTO journal (task_id, part, kind, subject, fence, order_no, line, sku, quantity, amount, row_after, recorded_ms)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT DO NOTHING`
	result, err := tx.ExecContext(ctx, insert, e.TaskID, part, e.Kind, e.subject, lock.Fence(ctx, e.subject), e.Order, e.Line, e.SKU,
		e.Quantity, e.Amount, string(text), time.Now().UnixMilli())
	if err != nil {
		return err
	}
	if rows, err := result.RowsAffected(); err != nil || rows == 1 {
		return err
	}
	there := Effect{TaskID: e.TaskID}
	err = tx.QueryRowContext(ctx, "SELECT kind, subject, order_no, line, sku, quantity, amount FROM journal WHERE task_id = $1 AND part = $2", e.TaskID, part).
		Scan(&there.Kind, &there.subject, &there.Order, &there.Line, &there.SKU, &there.Quantity, &there.Amount)
	if err != nil {
		return err
	}
	if there != e {
		return fmt.Errorf("%w: %s is the id of %s on %s already, wanted for %s on %s", ErrTaskID, e.TaskID, there.Kind, there.subject, e.Kind, e.subject)
	}
	return errRecorded
}
