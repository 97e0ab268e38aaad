package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/pgtest"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/tasks/ledger"
)

// backends returns what makes an empty database of each kind and names it.
func backends() map[string]func(*testing.T) string {
	return map[string]func(*testing.T) string{
		"sqlite":     func(t *testing.T) string { t.Helper(); return filepath.Join(t.TempDir(), "ledger.db") },
		"postgresql": func(t *testing.T) string { t.Helper(); return pgtest.DSN(t) },
	}
}

// create opens a ledger and creates its tables.
func create(ctx context.Context, dsn string) (*ledger.Ledger, error) {
	l, err := ledger.Open(dsn)
	if err != nil {
		return nil, err
	}
	if err := l.CreateTables(ctx); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func open(t *testing.T, dsn string) *ledger.Ledger {
	t.Helper()
	l := expect.Value(create(t.Context(), dsn))(t)
	t.Cleanup(func() {
		expect.Is(t, "close", l.Close(), nil)
	})
	return l
}

// deduction is the effect of a task of the given id.
func deduction(id string) ledger.Effect {
	return ledger.Effect{TaskID: id, Kind: "stock:deduct", Order: "536365", Line: 2, SKU: "85123A", Quantity: 6}
}

// fenced returns a context with the fencing token of all resources that tests write.
func fenced(ctx context.Context, fence int64) context.Context {
	for _, resource := range []string{"sku:85123A", "account:17850", "order:536365", "user:ann"} {
		ctx = locktest.WithFence(ctx, resource, fence) //nolint:fatcontext // four of them
	}
	return ctx
}

// wantStock wants so many units on hand, and so many entries in the journal.
func wantStock(t *testing.T, l *ledger.Ledger, onHand, entries int64) {
	t.Helper()
	var have [2]int64
	row := l.DB().QueryRowContext(t.Context(), "SELECT on_hand, (SELECT count(*) FROM journal) FROM stock WHERE sku = '85123A'")
	expect.OK(t, row.Scan(&have[0], &have[1]))
	expect.Equal(t, "units on hand and entries", have, [2]int64{onHand, entries})
}

// readStock reads the stock of a code, which begins with opening units.
func readStock(ctx context.Context, l *ledger.Ledger, sku string, opening int64) (ledger.Stock, error) {
	s := ledger.Stock{SKU: sku, OnHand: opening}
	err := l.Read(ctx, &s)
	return s, err
}

func TestReadAndWrite(t *testing.T) {
	t.Parallel()
	for name, dsn := range backends() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := open(t, dsn(t))
			ctx := fenced(t.Context(), 1)
			// Every kind of row: as it opens, written, and read back.
			stock, err := readStock(ctx, l, "85123A", 10)
			wantSame(t, ledger.Stock{SKU: "85123A", OnHand: 10}, stock, err)
			stock = ledger.Stock{SKU: "85123A", OnHand: 4, BackOrdered: 1}
			expect.OK(t, l.Write(ctx, &stock, deduction("t1")))
			again, err := readStock(ctx, l, "85123A", 99)
			wantSame(t, stock, again, err)

			account := ledger.Account{Customer: "17850"}
			err = l.Read(ctx, &account)
			wantSame(t, ledger.Account{Customer: "17850"}, account, err)
			account.Balance = -1391200
			expect.OK(t, l.Write(ctx, &account, ledger.Effect{TaskID: "t2", Kind: "balance:debit"}))
			account = ledger.Account{Customer: "17850"}
			err = l.Read(ctx, &account)
			wantSame(t, ledger.Account{Customer: "17850", Balance: -1391200}, account, err)

			order := ledger.Order{Number: "536365"}
			err = l.Read(ctx, &order)
			wantSame(t, ledger.Order{Number: "536365"}, order, err)
			order = ledger.Order{Number: "536365", Lines: 1, Units: 2, Value: 3, Audits: 4, AuditedLines: 5, Verdict: "partial"}
			expect.OK(t, l.Write(ctx, &order, ledger.Effect{TaskID: "t3", Kind: "order:audit"}))
			sameOrder := ledger.Order{Number: "536365"}
			err = l.Read(ctx, &sameOrder)
			wantSame(t, order, sameOrder, err)

			user := ledger.User{ID: "ann"}
			number, err := l.ReadUser(ctx, &user, "f1")
			wantSame(t, ledger.User{ID: "ann"}, user, err)
			wantSame(t, int64(0), number, nil)
			user.Placed = 1
			placement := ledger.Placement{Number: 1, Submission: "f1", Items: 2, Units: 3, Value: 4}
			expect.OK(t, l.WritePlacement(ctx, &user, placement, ledger.Effect{TaskID: "t4", Kind: "order:place"}))
			user = ledger.User{ID: "ann"}
			number, err = l.ReadUser(ctx, &user, "f1")
			wantSame(t, ledger.User{ID: "ann", Placed: 1}, user, err)
			wantSame(t, int64(1), number, nil)

			var after, subject string
			var fence, recorded int64
			row := l.DB().QueryRowContext(ctx, "SELECT subject, fence, row_after, recorded_ms FROM journal WHERE task_id = 't1'")
			expect.OK(t, row.Scan(&subject, &fence, &after, &recorded))
			if want := `{"on_hand":4,"back_ordered":1}`; subject != "sku:85123A" || fence != 1 || after != want || recorded == 0 {
				t.Errorf("journal: want sku:85123A, 1, %s and a time, have %s, %d, %s, %d", want, subject, fence, after, recorded)
			}
		})
	}
}

// TestTaskRunsTwice runs a task whose first attempt has committed, but whose
// worker did not live to say so.
func TestTaskRunsTwice(t *testing.T) {
	t.Parallel()
	for name, dsn := range backends() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := open(t, dsn(t))
			for fence := range int64(3) {
				ctx := fenced(t.Context(), fence+1)
				s := expect.Value(readStock(ctx, l, "85123A", 10))(t)
				s.OnHand -= 6
				expect.OK(t, l.Write(ctx, &s, deduction("t1"))) // on_hand < 0 later, were it written
			}
			wantStock(t, l, 4, 1)
			// Placements are written besides the row, and must not be twice either.
			for range 2 {
				ctx := fenced(t.Context(), 1)
				expect.OK(t, expect.Err(l.ReadUser(ctx, &ledger.User{ID: "ann"}, "f1")))
				expect.OK(t, l.WritePlacement(ctx, &ledger.User{ID: "ann", Placed: 1}, ledger.Placement{Number: 1, Submission: "f1"},
					ledger.Effect{TaskID: "t2", Kind: "order:place"}))
			}
			var placements int
			expect.OK(t, l.DB().QueryRowContext(t.Context(), "SELECT count(*) FROM placements").Scan(&placements))
			wantSame(t, 1, placements, nil)
		})
	}
}

// TestTaskIDOfAnother: asynq's ids are unique in one queue only, and users may
// choose them. Taking the second task for the first would lose it without a word.
func TestTaskIDOfAnother(t *testing.T) {
	t.Parallel()
	l := open(t, filepath.Join(t.TempDir(), "ledger.db"))
	ctx := fenced(t.Context(), 1)
	s := expect.Value(readStock(ctx, l, "85123A", 10))(t)
	s.OnHand = 4
	expect.OK(t, l.Write(ctx, &s, deduction("t1")))

	other := deduction("t1")
	other.Line = 3
	s.OnHand = 1
	expect.Is(t, "id of another task", l.Write(ctx, &s, other), ledger.ErrTaskID)
	expect.Is(t, "no id", l.Write(ctx, &s, deduction("")), ledger.ErrTaskID)
	wantStock(t, l, 4, 1)
}

func TestFences(t *testing.T) {
	t.Parallel()
	for name, dsn := range backends() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := open(t, dsn(t))
			first, second := fenced(t.Context(), 1), fenced(t.Context(), 2)
			old := expect.Value(readStock(first, l, "85123A", 10))(t)
			s, err := readStock(second, l, "85123A", 10)
			expect.OK(t, err)

			// The first holder is late: after its successor has read, although
			// before it has written.
			old.OnHand = 9
			err = l.Write(first, &old, deduction("t1"))
			stale, ok := errors.AsType[*store.StaleError](err)
			expect.That(t, ok && stale.Fence == 1 && stale.Seen == 2, "late write: want a stale error of 1 after 2, have %v", err)
			expect.Is(t, "late read", expect.Err(readStock(first, l, "85123A", 10)), lock.ErrStale)
			s.OnHand = 8
			expect.OK(t, l.Write(second, &s, deduction("t2")))

			// Without a lock there is no fence.
			expect.Is(t, "read without a lock", expect.Err(readStock(t.Context(), l, "85123A", 10)), lock.ErrNoFence)
			expect.Is(t, "write without a lock", l.Write(t.Context(), &s, deduction("t3")), lock.ErrNoFence)
			wantStock(t, l, 8, 1)
		})
	}
}

// TestWriteIsAllOrNothing has the database refuse the last statement of a write. Fence and journal
// entry are in the transaction by then.
func TestWriteIsAllOrNothing(t *testing.T) {
	t.Parallel()
	for name, dsn := range backends() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := open(t, dsn(t))
			ctx := fenced(t.Context(), 1)
			s := expect.Value(readStock(ctx, l, "85123A", 10))(t)
			s.OnHand = -1 // against the table's check
			err := l.Write(fenced(t.Context(), 2), &s, deduction("t1"))
			expect.That(t, err != nil, "want an error, have none")
			wantStock(t, l, 10, 0)
			s.OnHand = 4
			expect.OK(t, l.Write(ctx, &s, deduction("t1"))) // fence 2 has left no trace
		})
	}
}

// TestNoDeadlock has steps take the same two rows in either order, as a failed lock may let them.
func TestNoDeadlock(t *testing.T) {
	t.Parallel()
	for name, dsn := range backends() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := open(t, dsn(t))
			ctx := fenced(t.Context(), 1)
			var wg sync.WaitGroup
			for worker := range 8 {
				wg.Go(func() {
					for n := range 20 {
						e := ledger.Effect{TaskID: fmt.Sprint(worker, "-", n), Kind: "test"}
						changes := []ledger.Change{{Row: &ledger.Stock{SKU: "85123A"}, Effect: e}, {Row: &ledger.Account{Customer: "17850"}, Effect: e}}
						if worker%2 == 0 {
							slices.Reverse(changes)
						}
						err := l.Read(ctx, changes[0].Row, changes[1].Row)
						if err == nil {
							err = l.WriteAll(ctx, changes...)
						}
						if err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
		})
	}
}

func TestContextEnds(t *testing.T) {
	t.Parallel()
	for name, dsn := range backends() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := open(t, dsn(t))
			ctx, cancel := context.WithCancelCause(fenced(t.Context(), 1))
			s := expect.Value(readStock(ctx, l, "85123A", 10))(t)
			cancel(lock.ErrLost)
			s.OnHand = 4
			expect.Is(t, "write", l.Write(ctx, &s, deduction("t1")), lock.ErrLost)
			expect.Is(t, "read", expect.Err(readStock(ctx, l, "85123A", 10)), lock.ErrLost)
			wantStock(t, l, 10, 0)
			// The time of a task is its own: the database may be there for the others.
			late, stop := context.WithDeadline(fenced(t.Context(), 1), time.Now())
			defer stop()
			_, err := readStock(late, l, "85123A", 10)
			expect.That(t, errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ledger.ErrUnavailable), "late: want %v, and a database that is available, have %v", context.DeadlineExceeded, err)
		})
	}
}

func wantSame[T any](t *testing.T, want, have T, err error) {
	t.Helper()
	expect.OK(t, err)
	expect.Same(t, "rows", have, want)
}
