package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sidingq/siding/lock"
)

// ErrTaskID says that a task cannot be told apart by its id: it has none, or
// another task has recorded its effect under the same one. Treating the second
// as done would lose it.
var ErrTaskID = errors.New("ledger: task id does not identify the task")

// An Effect is what the journal keeps of a task, besides what it changed.
type Effect struct {
	// TaskID is the task's id, the same for all its attempts.
	TaskID string
	// Kind is the task's kind, and Subject its resource.
	Kind, Subject string
	// Order, Line and SKU say what the effect comes from; empty and 0 where
	// that does not apply.
	Order string
	Line  int
	SKU   string
	// Quantity and Amount are the task's own, as it was asked for.
	Quantity, Amount int64
}

// errRecorded makes a transaction roll back because its effect is in the
// journal already.
var errRecorded = errors.New("ledger: effect is recorded already")

// record writes e, after which the changed row is as given, or returns
// errRecorded when it is there.
func (l *Ledger) record(ctx context.Context, tx *sql.Tx, e Effect, after any) error {
	if e.TaskID == "" {
		return fmt.Errorf("%w: %s on %s has none", ErrTaskID, e.Kind, e.Subject)
	}
	text, err := json.Marshal(after)
	if err != nil {
		return fmt.Errorf("ledger %s: journal: %w", l.name, err)
	}
	result, err := tx.StmtContext(ctx, l.tables.journal).ExecContext(ctx,
		e.TaskID, e.Kind, e.Subject, lock.Fence(ctx, e.Subject), e.Order, e.Line, e.SKU, e.Quantity, e.Amount,
		string(text), time.Now().UnixMilli())
	if err != nil {
		return l.explain(ctx, "journal", err)
	}
	rows, err := result.RowsAffected()
	if err != nil {
		return l.explain(ctx, "journal", err)
	}
	if rows == 1 {
		return nil
	}
	there := Effect{TaskID: e.TaskID}
	err = tx.StmtContext(ctx, l.tables.journaled).QueryRowContext(ctx, e.TaskID).
		Scan(&there.Kind, &there.Subject, &there.Order, &there.Line, &there.SKU, &there.Quantity, &there.Amount)
	if err != nil {
		return l.explain(ctx, "journal", err)
	}
	if there != e {
		return fmt.Errorf("%w: %s is the id of %s on %s already, wanted for %s on %s",
			ErrTaskID, e.TaskID, there.Kind, there.Subject, e.Kind, e.Subject)
	}
	return errRecorded
}
