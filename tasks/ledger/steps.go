package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/sqlfence"
)

// read is the first step of a task: the row of key goes to dest. A row that is
// not there is made, with defaults. more, if not nil, reads further in the same
// transaction.
func (l *Ledger) read(ctx context.Context, t table, key string, defaults, dest []any, more func(context.Context, *sql.Tx) error) error {
	doing := fmt.Sprintf("read %s %q", t.fence.Name, key)
	return l.inTx(ctx, doing, func(ctx context.Context, tx *sql.Tx) error {
		err := l.advance(ctx, tx, doing, t, key)
		if errors.Is(err, sqlfence.ErrNoRow) {
			if _, err := tx.StmtContext(ctx, t.insert).ExecContext(ctx, append([]any{key}, defaults...)...); err != nil {
				return l.explain(ctx, doing, err)
			}
			err = l.advance(ctx, tx, doing, t, key)
		}
		if err != nil {
			return err
		}
		if err := tx.StmtContext(ctx, t.read).QueryRowContext(ctx, key).Scan(dest...); err != nil {
			return l.explain(ctx, doing, err)
		}
		if more == nil {
			return nil
		}
		if err := more(ctx, tx); err != nil {
			return l.explain(ctx, doing, err)
		}
		return nil
	})
}

// write is the second step: the row of key gets its new values, unless a later
// holder has been there or the effect is in the journal. more, if not nil,
// writes further in the same transaction.
func (l *Ledger) write(ctx context.Context, t table, key string, values []any, after any, e Effect, more func(context.Context, *sql.Tx) error) error {
	doing := fmt.Sprintf("write %s %q", t.fence.Name, key)
	err := l.inTx(ctx, doing, func(ctx context.Context, tx *sql.Tx) error {
		if err := l.advance(ctx, tx, doing, t, key); err != nil {
			return err
		}
		if err := l.record(ctx, tx, e, after); err != nil {
			return err
		}
		if _, err := tx.StmtContext(ctx, t.update).ExecContext(ctx, append([]any{key}, values...)...); err != nil {
			return l.explain(ctx, doing, err)
		}
		if more == nil {
			return nil
		}
		if err := more(ctx, tx); err != nil {
			return l.explain(ctx, doing, err)
		}
		return nil
	})
	if errors.Is(err, errRecorded) {
		return nil
	}
	return err
}

// advance has the row of key accept the fence of its resource, or not. What sqlfence
// refuses is returned as it is; what the database refuses is explained.
func (l *Ledger) advance(ctx context.Context, tx *sql.Tx, doing string, t table, key string) error {
	err := t.fence.Advance(ctx, tx, key, lock.Fence(ctx, t.resource+key))
	switch {
	case err == nil:
		return nil
	case errors.Is(err, lock.ErrStale), errors.Is(err, sqlfence.ErrNoRow), errors.Is(err, lock.ErrNoFence):
		return err
	default:
		return l.explain(ctx, doing, err)
	}
}
