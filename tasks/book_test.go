package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/queue/queuetest"
	"github.com/sidingq/siding/tasks"
	"github.com/sidingq/siding/tasks/ledger"
)

// A bundle is a book on a ledger of its own.
type bundle struct {
	ledger *ledger.Ledger
	book   *tasks.Book
	ran    int
}

func setup(t *testing.T) *bundle {
	t.Helper()
	l := openLedger(t, filepath.Join(t.TempDir(), "ledger.db"))
	return &bundle{ledger: l, book: tasks.NewBook(l, 0)}
}

func openLedger(t *testing.T, dsn string) *ledger.Ledger {
	t.Helper()
	l := expect.Value(ledger.Open(dsn))(t)
	expect.OK(t, l.CreateTables(t.Context()))
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// attempt is the context of an attempt at a task.
func attempt(ctx context.Context, task queue.Task, id string, fence int64) context.Context {
	ctx = queuetest.WithInfo(ctx, queue.Info{ID: id})
	if guarded, ok := task.(queue.Guarded); ok {
		ctx = fenced(ctx, guarded, fence)
	}
	return ctx
}

// fenced gives each of the task's resources the fence.
func fenced(ctx context.Context, task queue.Guarded, fence int64) context.Context {
	for _, resource := range store.Names(task.Resource()) {
		ctx = locktest.WithFence(ctx, resource, fence) //nolint:fatcontext // a few
	}
	return ctx
}

// run runs tasks one after the other, each under a lock and an id of its own.
func (b *bundle) run(t *testing.T, all ...queue.Task) {
	t.Helper()
	for _, task := range all {
		b.ran++
		err := b.book.Run(attempt(t.Context(), task, fmt.Sprintf("task-%d", b.ran), int64(b.ran)), task)
		expect.Need(t, err == nil, "%+v: %v", task, err)
	}
}

// query returns the rows of a query as text, a row a line.
func (b *bundle) query(t *testing.T, query string) string {
	t.Helper()
	rows := expect.Value(b.ledger.DB().QueryContext(t.Context(), query))(t)
	defer func() { _ = rows.Close() }()
	columns := expect.Value(rows.Columns())(t)
	var lines []string
	for rows.Next() {
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(string)
		}
		expect.OK(t, rows.Scan(values...))
		var line []string
		for _, v := range values {
			line = append(line, *v.(*string)) //nolint:errcheck // made above
		}
		lines = append(lines, strings.Join(line, " "))
	}
	expect.OK(t, rows.Err())
	return strings.Join(lines, "\n")
}

func (b *bundle) want(t *testing.T, query, want string) {
	t.Helper()
	expect.Same(t, query, b.query(t, query), want)
}

func TestOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const order = "SELECT lines, units, value, audits, audited_lines, verdict FROM orders"
	b.run(t, tasks.AuditOrder{Order: "536365"})
	b.want(t, order, "0 0 0 1 0 unchecked")
	b.run(
		t,
		tasks.AllocateLine{Order: "536365", Line: 1, SKU: "85123A", Quantity: 6, Price: 25500},
		tasks.AuditOrder{Order: "536365", Lines: 2},
	)
	b.want(t, order, "1 6 153000 2 1 partial")
	b.run(
		t,
		tasks.AllocateLine{Order: "536365", Line: 2, SKU: "85123A", Quantity: -2, Price: 25500},
		tasks.AuditOrder{Order: " 536365 ", Lines: 2},
	)
	b.want(t, order, "2 4 102000 3 2 complete")
	b.run(
		t,
		tasks.AllocateLine{Order: "536365", Line: 3, SKU: "POST", Quantity: 1, Price: 0},
		tasks.AuditOrder{Order: "536365", Lines: 2},
	)
	b.want(t, order, "3 5 102000 4 3 excess")
	b.want(t, "SELECT order_no, line, sku, quantity, amount FROM journal WHERE line = 2", "536365 2 85123A -2 -51000")
}

func TestTransferBalance(t *testing.T) {
	t.Parallel()
	b := setup(t)
	transfer := func(from, to string, cents int64) tasks.TransferBalance {
		return tasks.TransferBalance{From: from, To: to, Cents: cents}
	}
	const accounts = "SELECT customer, balance, declined FROM accounts ORDER BY customer"
	b.run(t, transfer("1", "2", 1))
	b.want(t, accounts, "1 0 1\n2 0 0")
	b.run(t, tasks.DebitBalance{Customer: "1", Order: "C1", Amount: -50_000}, transfer("1", " 2", 500))
	b.want(t, accounts, "1 0 1\n2 50000 0")
	b.run(t, transfer("2", "1", 501), transfer("2", "1", 200))
	b.want(t, accounts, "1 20000 1\n2 30000 1")
}

// TestOneStaleFence: who has lost one lock of several changes nothing, whichever it is.
func TestOneStaleFence(t *testing.T) {
	t.Parallel()
	for _, task := range []queue.Guarded{
		tasks.TransferBalance{From: "1", To: "2", Cents: 1},
		tasks.FulfilOrder{Order: "1", Items: []tasks.Pick{{SKU: "22086", Quantity: 1}, {SKU: "22087", Quantity: 1}}},
	} {
		for _, lost := range store.Names(task.Resource()) {
			t.Run(task.Kind()+" without "+lost, func(t *testing.T) {
				t.Parallel()
				path := filepath.Join(t.TempDir(), "ledger.db")
				synctest.Test(t, func(t *testing.T) {
					b, slow := slowAndFast(t, path)
					b.run(t, tasks.DebitBalance{Customer: "1", Order: "C1", Amount: -50_000})
					late := make(chan error)
					go func() { late <- slow.Run(attempt(t.Context(), task, "t1", 2), task) }()
					synctest.Wait() // it has read, and thinks
					var next ledger.Row
					switch kind, id, _ := strings.Cut(lost, ":"); kind {
					case "account":
						next = &ledger.Account{Customer: id}
					case "order":
						next = &ledger.Order{Number: id}
					case "sku":
						next = &ledger.Stock{SKU: id}
					}
					expect.OK(t, b.ledger.Read(locktest.WithFence(t.Context(), lost, 3), next))
					expect.Is(t, "the late write", <-late, lock.ErrStale)
					b.want(t, "SELECT count(*) FROM journal", "1")
					b.want(t, "SELECT balance FROM accounts WHERE balance NOT IN (0, 50000)", "")
					b.want(t, "SELECT on_hand FROM stock WHERE on_hand < 1000", "")
					b.want(t, "SELECT fulfilment FROM orders WHERE fulfilment <> ''", "")
				})
			})
		}
	}
}

// TestPlaceOrder submits one form twice.
func TestPlaceOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	basket := []tasks.Item{{SKU: "85123A", Quantity: 6, Price: 25500}, {SKU: "71053", Quantity: 2, Price: 33900}}
	b.run(
		t,
		tasks.PlaceOrder{User: "ann", Submission: "f1", Items: basket},
		tasks.PlaceOrder{User: "ann", Submission: "f1", Items: basket},
		tasks.PlaceOrder{User: "ann", Submission: "f2", Items: basket[:1]},
		tasks.PlaceOrder{User: "bob", Submission: "f1", Items: basket[1:]}, // a form of his own
		tasks.PlaceOrder{User: "ann", Submission: " f1 ", Items: basket},
	)
	b.want(t, "SELECT user_id, number, submission, items, units, value FROM placements ORDER BY user_id, number",
		"ann 1 f1 2 8 220800\nann 2 f2 1 6 153000\nbob 1 f1 1 2 67800")
	b.want(t, "SELECT user_id, placed FROM users ORDER BY user_id", "ann 2\nbob 1")
}

// TestRunTwice gives each kind of task two attempts, as a crash at the wrong
// moment does. The second finds the first's effect.
func TestRunTwice(t *testing.T) {
	t.Parallel()
	for _, task := range oneOfEach() {
		t.Run(task.Kind(), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.run(t, tasks.DebitBalance{Customer: "17850", Order: "C1", Amount: -40_000}) // enough for one transfer
			expect.OK(t, b.book.Run(attempt(t.Context(), task, "t1", 1), task))
			tables := []string{"orders", "stock", "accounts", "users", "placements", "journal"}
			// All but the fence, which may rise.
			columns := map[string]string{
				"orders": "order_no, lines, units, value, audits, fulfilment", "stock": "sku, on_hand, back_ordered",
				"accounts": "customer, balance, declined", "users": "user_id, placed",
				"placements": "task_id, number", "journal": "task_id, part, fence, row_after",
			}
			state := func() (all []string) {
				for _, table := range tables {
					all = append(all, b.query(t, "SELECT "+columns[table]+" FROM "+table))
				}
				return all
			}
			before := state()
			expect.Is(t, "second attempt", b.book.Run(attempt(t.Context(), task, "t1", 2), task), nil)
			expect.Same(t, "second attempt", state(), before)
		})
	}
}

// TestErrors says which errors no retry mends: only those.
func TestErrors(t *testing.T) {
	t.Parallel()
	debit := func(amount tasks.Money) tasks.DebitBalance {
		return tasks.DebitBalance{Customer: "17850", Order: "536365", Amount: amount}
	}
	b := setup(t)
	b.run(t, debit(math.MaxInt64))
	expect.OK(t, b.book.Run(attempt(t.Context(), debit(1), "t2", 50), debit(1)))
	transfer := tasks.TransferBalance{From: "1", To: "2", Cents: 1}
	place := func(submission string) tasks.PlaceOrder {
		return tasks.PlaceOrder{User: "ann", Submission: submission, Items: []tasks.Item{{SKU: "85123A", Quantity: 6, Price: 25500}}}
	}
	b.run(t, transfer, place("f1"))
	tests := []struct {
		name      string
		id        string
		fence     int64
		task      queue.Task
		want      error  // matched, where not nil
		text      string // contained
		permanent bool
	}{
		{"unknown", "t3", 100, other{}, nil, `no handler for tasks_test.other of kind "other"`, true},
		{"out of range", "t3", 100, debit(math.MaxInt64), nil, "balance:debit: balance of account:17850 is out of range", true},
		{"id of another task", "t2", 100, debit(-1), ledger.ErrTaskID, "t2 is the id of balance:debit on account:17850", true},
		{"id of another transfer", "task-2", 100, tasks.TransferBalance{From: "1", To: "3", Cents: 1}, ledger.ErrTaskID, "on account:2 already, wanted for balance:transfer on account:3", true},
		{"id of a debit", "t2", 100, transfer, ledger.ErrTaskID, "t2 is the id of balance:debit on account:17850", true},
		{"id of another submission", "task-3", 100, place("f2"), ledger.ErrTaskID, "task-3 is the id of order:place on user:ann", true},
		{"former holder", "t3", 49, debit(-1), lock.ErrStale, "", false},
		{"no lock", "t3", 0, debit(-1), lock.ErrNoFence, "", false},
	}
	for _, test := range tests {
		err := b.book.Run(attempt(t.Context(), test.task, test.id, test.fence), test.task)
		if err == nil || !strings.Contains(err.Error(), test.text) || test.want != nil && !errors.Is(err, test.want) {
			t.Errorf("%s: want %v ... %s, have %v", test.name, test.want, test.text, err)
			continue
		}
		have := isPermanent(err)
		expect.That(t, have == test.permanent, "%s: want permanent %t, have %t: %v", test.name, test.permanent, have, err)
	}
	b.want(t, "SELECT count(*) FROM journal", "5")
}

type other struct{}

func (other) Kind() string { return "other" }

// isPermanent asks for the mark that queue.Permanent puts on an error.
func isPermanent(err error) bool {
	marked, ok := queue.Permanent(errors.New("any")).(interface{ Unwrap() []error })
	return ok && slices.ContainsFunc(marked.Unwrap()[1:], func(mark error) bool { return errors.Is(err, mark) })
}
