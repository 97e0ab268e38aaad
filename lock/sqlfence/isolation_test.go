package sqlfence_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/lock"
)

// TestOlderSnapshot has a transaction advance a row that has changed since the transaction began. The
// transaction still sees the row at its own fence, if its isolation level is so.
func TestOlderSnapshot(t *testing.T) {
	t.Parallel()
	deferred := backend{"sqlite", "deferred", func(t *testing.T) *bundle { t.Helper(); return openSQLite(t, "deferred") }, true}
	each(t, append(levels(), deferred), func(t *testing.T, b *bundle, on backend) {
		t.Helper()
		for _, test := range []struct {
			now, fence int64 // what the row has, and what the transaction brings
		}{{3, 2}, {3, 3}, {3, 4}} {
			ctx := t.Context()
			b.exec(t, "UPDATE items SET fence = 2")
			tx, err := b.begin(ctx)
			must(t, err)
			t.Cleanup(tx.rollback) // before the database is closed, also if the test fails
			seen, err := tx.number("SELECT fence FROM items WHERE id = 'a'")
			if err != nil || seen != 2 {
				t.Fatalf("want fence 2, have %d, %v", seen, err)
			}
			other := make(chan error, 1)
			go func() { other <- b.advance(ctx, test.now, "a") }()
			if !b.endsFirst(t, other) {
				// The read has locked the row, in MySQL's SERIALIZABLE: what was read is not old.
				tx.rollback()
				if err := <-other; err != nil {
					t.Errorf("fence %d: want it accepted once the reader has gone, have %v", test.now, err)
				}
				continue
			}
			err = tx.advance(b.table, test.fence, "a")
			if err == nil {
				err = tx.commit()
			}
			tx.rollback()
			switch {
			case on.conflicts:
				if !databaseError(err) && !errors.Is(err, lock.ErrStale) || err == nil {
					t.Errorf("fence %d after %d: want it refused, have %v", test.fence, test.now, err)
				}
			case test.fence < test.now:
				if !errors.Is(err, lock.ErrStale) {
					t.Errorf("fence %d after %d: want %v, have %v", test.fence, test.now, lock.ErrStale, err)
				}
			case err != nil:
				t.Errorf("fence %d after %d: want it accepted, have %v", test.fence, test.now, err)
			}
			if have := b.fence(t); have < test.now {
				t.Errorf("want fence %d or more, have %d", test.now, have)
			}
		}
	})
}

// endsFirst waits until done has a value, which must be nil, or a transaction waits for a lock.
func (b *bundle) endsFirst(t *testing.T, done chan error) (ended bool) {
	t.Helper()
	err := poll.Until(t.Context(), func() error {
		select {
		case err := <-done:
			must(t, err)
			ended = true
			return nil
		default:
		}
		if b.waiting != nil && b.waiting(t) {
			return nil
		}
		return errors.New("the transaction neither ends nor waits")
	})
	if err != nil {
		t.Fatal(err)
	}
	return ended
}

// TestAdvancedRowIsLocked has a transaction advance a row that another one has advanced and not yet
// committed. The second waits for the end of the first, also if that has changed nothing.
func TestAdvancedRowIsLocked(t *testing.T) {
	t.Parallel()
	each(t, levels(), func(t *testing.T, b *bundle, on backend) {
		t.Helper()
		for _, test := range []struct {
			first, second int64
			commit        bool
		}{{3, 4, true}, {3, 4, false}, {4, 3, true}, {4, 3, false}, {4, 4, true}, {4, 5, true}, {4, 5, false}} {
			ctx, name := t.Context(), fmt.Sprintf("%+v", test)
			b.exec(t, "UPDATE items SET fence = 3")
			tx, err := b.begin(ctx)
			must(t, err)
			t.Cleanup(tx.rollback) // before the database is closed, also if the test fails
			if err := tx.advance(b.table, test.first, "a"); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			second := make(chan error, 1)
			go func() { second <- b.advance(ctx, test.second, "a") }()
			if b.endsFirst(t, second) {
				t.Errorf("%s: want the second to wait for the first, have it done", name)
				tx.rollback()
				continue
			}
			if test.commit {
				if err := tx.commit(); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
			}
			tx.rollback()

			err, have, want := <-second, b.fence(t), test.second
			switch {
			case test.commit && on.conflicts && databaseError(err):
				want = test.first
			case test.commit && test.second < test.first:
				want = test.first
				if !errors.Is(err, lock.ErrStale) {
					t.Errorf("%s: want %v, have %v", name, lock.ErrStale, err)
				}
			case err != nil:
				t.Errorf("%s: want the second accepted, have %v", name, err)
			}
			if have != want {
				t.Errorf("%s: want fence %d, have %d", name, want, have)
			}
		}
	})
}
