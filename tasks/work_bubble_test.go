package tasks_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/tasks"
)

// oneOfEach returns a task of each kind.
func oneOfEach() []queue.Task {
	return []queue.Task{
		tasks.AuditOrder{Order: "536365", Lines: 1},
		tasks.AllocateLine{Order: "536365", Line: 1, SKU: "85123A", Quantity: 6, Price: 25500},
		tasks.DeductStock{SKU: "85123A", Quantity: 6, Order: "536365", Line: 1},
		tasks.DebitBalance{Customer: "17850", Order: "536365", Amount: 1391200},
		tasks.PlaceOrder{User: "ann", Submission: "f1", Items: []tasks.Item{{SKU: "85123A", Quantity: 6, Price: 25500}}},
		tasks.TransferBalance{From: "17850", To: "13047", Cents: 250},
		tasks.FulfilOrder{Order: "536365", Items: []tasks.Pick{{SKU: "85123A", Quantity: 600}, {SKU: "71053", Quantity: 2}}},
	}
}

// slowAndFast returns two books on one ledger; the slow one thinks for an hour.
func slowAndFast(t *testing.T, path string) (fast *bundle, slow *tasks.Book) {
	t.Helper()
	l := openLedger(t, path)
	return &bundle{ledger: l, book: tasks.NewBook(l, 0)}, tasks.NewBook(l, time.Hour)
}

// TestWorkEndsWithTheContext: a task that thinks stops when its lock is lost, and
// has changed nothing.
func TestWorkEndsWithTheContext(t *testing.T) {
	t.Parallel()
	for _, task := range oneOfEach() {
		t.Run(task.Kind(), func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "ledger.db")
			synctest.Test(t, func(t *testing.T) {
				b, slow := slowAndFast(t, path)
				start := time.Now()
				ctx, cancel := context.WithTimeoutCause(attempt(t.Context(), task, "t1", 1), time.Minute, lock.ErrLost)
				defer cancel()
				err := slow.Run(ctx, task)
				expect.That(t, errors.Is(err, lock.ErrLost) && !isPermanent(err), "want the cause %v, have %v", lock.ErrLost, err)
				have := time.Since(start)
				expect.That(t, have == time.Minute, "want it to stop after a minute, have %v", have)
				b.want(t, "SELECT count(*) FROM journal", "0")
			})
		})
	}
}

// TestPausedHolder: a task that thought for longer than its lock lived writes
// after its successor, or tries to.
func TestPausedHolder(t *testing.T) {
	t.Parallel()
	for _, task := range oneOfEach() {
		t.Run(task.Kind(), func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "ledger.db")
			synctest.Test(t, func(t *testing.T) {
				b, slow := slowAndFast(t, path)
				late := make(chan error)
				go func() { late <- slow.Run(attempt(t.Context(), task, "t1", 1), task) }()
				synctest.Wait() // it has read, and thinks
				expect.OK(t, b.book.Run(attempt(t.Context(), task, "t2", 2), task))
				err := <-late
				expect.That(t, errors.Is(err, lock.ErrStale) && !isPermanent(err), "want %v, which a retry mends, have %v", lock.ErrStale, err)
				b.want(t, "SELECT DISTINCT task_id, fence FROM journal", "t2 2")
			})
		})
	}
}
