package sqlfence_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
)

// TestOlderSnapshot has a transaction advance a row that has changed since the transaction began. The
// transaction still sees the row at its own fence, if its isolation level is so.
func TestOlderSnapshot(t *testing.T) {
	t.Parallel()
	deferred := backend{"sqlite", "deferred", func(t *testing.T) *bundle { t.Helper(); return openSQLite(t, "deferred") }, true}
	each(t, append(levels(), deferred), func(b *bundle, on backend) {
		for _, test := range []struct {
			now, fence int64 // what the row has, and what the transaction brings
		}{{3, 2}, {3, 3}, {3, 4}} {
			ctx := b.Context()
			b.exec("UPDATE items SET fence = 2")
			tx := expect.Value(b.begin(ctx))(b)
			rollback := func() { _ = tx.Rollback() }
			b.Cleanup(rollback) // before the database is closed, also if the test fails
			var seen int64
			err := tx.QueryRowContext(ctx, "SELECT fence FROM items WHERE id = 'a'").Scan(&seen)
			expect.Need(b, err == nil && seen == 2, "want fence 2, have %d, %v", seen, err)
			other := make(chan error, 1)
			go func() { other <- b.advance(ctx, test.now, "a") }()
			if !b.endsFirst(other) {
				// The read has locked the row, in MySQL's SERIALIZABLE: what was read is not old.
				rollback()
				expect.OK(b, <-other) // once the reader has gone
				continue
			}
			err = b.table.Advance(ctx, tx, test.fence, "a")
			if err == nil {
				err = tx.Commit()
			}
			rollback()
			switch {
			case on.conflicts:
				expect.That(b, (databaseError(err) || errors.Is(err, lock.ErrStale)) && err != nil,
					"fence %d after %d: want it refused, have %v", test.fence, test.now, err)
			case test.fence < test.now:
				expect.That(b, errors.Is(err, lock.ErrStale), "fence %d after %d: want %v, have %v", test.fence, test.now, lock.ErrStale, err)
			case err != nil:
				b.Errorf("fence %d after %d: want it accepted, have %v", test.fence, test.now, err)
			}
			have := b.fence()
			expect.That(b, have >= test.now, "want fence %d or more, have %d", test.now, have)
		}
	})
}

// endsFirst waits until done has a value, which must be nil, or a transaction waits for a lock.
func (b *bundle) endsFirst(done chan error) (ended bool) {
	b.Helper()
	err := expect.Until(b.Context(), func() error {
		select {
		case err := <-done:
			expect.OK(b, err)
			ended = true
			return nil
		default:
		}
		if b.waiting != nil && b.waiting() {
			return nil
		}
		return errors.New("the transaction neither ends nor waits")
	})
	expect.OK(b, err)
	return ended
}

// TestAdvancedRowIsLocked has a transaction advance a row that another one has advanced and not yet
// committed. The second waits for the end of the first, also if that has changed nothing.
func TestAdvancedRowIsLocked(t *testing.T) {
	t.Parallel()
	each(t, levels(), func(b *bundle, on backend) {
		for _, test := range []struct {
			first, second int64
			commit        bool
		}{{3, 4, true}, {3, 4, false}, {4, 3, true}, {4, 3, false}, {4, 4, true}, {4, 5, true}, {4, 5, false}} {
			ctx, name := b.Context(), fmt.Sprintf("%+v", test)
			b.exec("UPDATE items SET fence = 3")
			tx := expect.Value(b.begin(ctx))(b)
			rollback := func() { _ = tx.Rollback() }
			b.Cleanup(rollback) // before the database is closed, also if the test fails
			if err := b.table.Advance(ctx, tx, test.first, "a"); err != nil {
				b.Fatalf("%s: %v", name, err)
			}
			second := make(chan error, 1)
			go func() { second <- b.advance(ctx, test.second, "a") }()
			if b.endsFirst(second) {
				b.Errorf("%s: want the second to wait for the first, have it done", name)
				rollback()
				continue
			}
			if test.commit {
				if err := tx.Commit(); err != nil {
					b.Fatalf("%s: %v", name, err)
				}
			}
			rollback()

			err, have, want := <-second, b.fence(), test.second
			switch {
			case test.commit && on.conflicts && databaseError(err):
				want = test.first
			case test.commit && test.second < test.first:
				want = test.first
				expect.That(b, errors.Is(err, lock.ErrStale), "%s: want %v, have %v", name, lock.ErrStale, err)
			case err != nil:
				b.Errorf("%s: want the second accepted, have %v", name, err)
			}
			expect.That(b, have == want, "%s: want fence %d, have %d", name, want, have)
		}
	})
}
