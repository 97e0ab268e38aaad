package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/pgtest"
	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/queue/queuetest"
	"github.com/sidingq/siding/tasks"
	"github.com/sidingq/siding/tasks/oracle"
)

// A mix is a day's work: what it should come to, and the tasks that do it.
type mix struct {
	lines      []oracle.Line
	placements []oracle.Placement
	transfers  []oracle.Transfer
	fulfilled  []oracle.Fulfilment
	tasks      []queue.Guarded
}

// newMix makes up orders with all the traits of real ones. Many orders have few products and
// customers. There are stock codes in two cases, services, samples without a price, orders without
// a customer, cancellations and write-offs. A product may be twice in an order, and forms are
// submitted twice. Customers pass on what cancellations have paid back, and some orders are fulfilled
// from shelves that others empty, to the last piece, or asked for twice. Numbers have blanks around them.
func newMix(t *testing.T) mix {
	t.Helper()
	const orders, linesPerOrder = 12, 8
	skus := []string{"85123A", "85049A", "85049a", "22086", "22086", "POST", "M", "gift_0001_10"}
	random := rand.New(rand.NewPCG(verify.Seed(t), 0))
	var m mix
	for o := range orders {
		number, customer := fmt.Sprintf("5363%02d", o), fmt.Sprintf("178%02d", o%3)
		cancelled := o%5 == 0
		if cancelled {
			number = "C" + number
		}
		if o%4 == 1 {
			customer = ""
		}
		var total tasks.Money
		for n := range linesPerOrder {
			l := oracle.Line{
				Number: len(m.lines) + 2, Order: number, Customer: customer,
				SKU:      skus[random.IntN(len(skus))],
				Quantity: int64(random.IntN(300) + 1),
				Price:    int64(random.IntN(4)) * 12345,
			}
			writeOff := !cancelled && n == 5
			if cancelled || writeOff {
				l.Quantity = -l.Quantity
			}
			m.lines = append(m.lines, l)
			m.tasks = append(m.tasks, tasks.AllocateLine{
				Order: number + " ", Line: l.Number, SKU: l.SKU, Quantity: l.Quantity, Price: tasks.Money(l.Price),
			})
			total += tasks.Money(l.Quantity * l.Price)
			if '0' <= l.SKU[0] && l.SKU[0] <= '9' {
				quantity := l.Quantity
				if writeOff {
					quantity = -quantity
				}
				m.tasks = append(m.tasks, tasks.DeductStock{SKU: " " + l.SKU, Quantity: quantity, Order: " " + number, Line: l.Number})
			}
		}
		m.tasks = append(m.tasks, tasks.AuditOrder{Order: " " + number, Lines: linesPerOrder})
		if customer != "" && total != 0 {
			m.tasks = append(m.tasks, tasks.DebitBalance{Customer: customer + " ", Order: number + " ", Amount: total})
		}
		p := oracle.Placement{User: fmt.Sprintf("user-%d", o%2), Submission: fmt.Sprintf("form-%d", o)}
		m.placements = append(m.placements, p)
		basket := []tasks.Item{{SKU: "85123A", Quantity: 1, Price: 25500}}
		for range 2 {
			m.tasks = append(m.tasks, tasks.PlaceOrder{User: p.User, Submission: p.Submission, Items: basket})
		}
		for n := range 3 {
			from, to, cents := fmt.Sprintf("178%02d", n), fmt.Sprintf("178%02d", (n+1+o%2)%3), int64(100+o)
			m.transfers = append(m.transfers, oracle.Transfer{From: from, To: to, Amount: cents * 100})
			m.tasks = append(m.tasks, tasks.TransferBalance{From: " " + from, To: to + " ", Cents: cents})
		}
		f := oracle.Fulfilment{Order: number, Units: map[string]int64{"85123A": 90, "85049a": int64(o + 1), "gift_0001_10": 250}}
		for range 1 + o%2 {
			m.fulfilled = append(m.fulfilled, f)
			m.tasks = append(m.tasks, tasks.FulfilOrder{Order: number + " ", Items: []tasks.Pick{
				{SKU: "85123A", Quantity: 90}, {SKU: "85049a ", Quantity: int64(o + 1)}, {SKU: "GIFT_0001_10", Quantity: 250},
			}})
		}
	}
	random.Shuffle(len(m.tasks), func(i, j int) { m.tasks[i], m.tasks[j] = m.tasks[j], m.tasks[i] })
	return m
}

// A runner decides under which lock and fence a task is tried.
type runner func(ctx context.Context, t queue.Guarded, try func(context.Context) error) error

// work runs the mix on 16 goroutines and asks the oracle.
func (m mix) work(t *testing.T, dsn string, run runner) oracle.Report {
	t.Helper()
	l := openLedger(t, dsn)
	book := tasks.NewBook(l, 200*time.Microsecond)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(m.tasks); i = next.Add(1) - 1 {
				task := m.tasks[i]
				ctx := queuetest.WithInfo(t.Context(), queue.Info{ID: fmt.Sprintf("task-%d", i), Kind: task.Kind(), Resource: task.Resource()})
				expect.Is(t, fmt.Sprintf("%+v", task), run(ctx, task, func(ctx context.Context) error { return book.Run(ctx, task) }), nil)
			}
		})
	}
	wg.Wait()
	report := expect.Value(oracle.Check(t.Context(), l.DB(), oracle.Input{
		Lines:        slices.Values(m.lines),
		Placements:   m.placements,
		Transfers:    m.transfers,
		Fulfilments:  m.fulfilled,
		OpeningStock: tasks.OpeningStock,
	}))(t)
	return report
}

// locked runs a task under a mutex of each of its resources, with fences that rise
// from holder to holder.
func locked() runner {
	type holder struct {
		sync.Mutex
		fence int64
	}
	var resources sync.Map
	return func(ctx context.Context, t queue.Guarded, try func(context.Context) error) error {
		for _, resource := range store.Names(t.Resource()) { // sorted: no deadlock
			h, _ := resources.LoadOrStore(resource, &holder{})
			held := h.(*holder) //nolint:errcheck // stored above
			held.Lock()
			defer held.Unlock()
			held.fence++
			ctx = locktest.WithFence(ctx, resource, held.fence) //nolint:fatcontext // a few
		}
		return try(ctx)
	}
}

func TestWithLock(t *testing.T) {
	t.Parallel()
	dsns := map[string]func(*testing.T) string{
		"sqlite":     func(t *testing.T) string { t.Helper(); return filepath.Join(t.TempDir(), "ledger.db") },
		"postgresql": func(t *testing.T) string { t.Helper(); return pgtest.DSN(t) },
	}
	for name, dsn := range dsns {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMix(t)
			report := m.work(t, dsn(t), locked())
			expect.That(t, report.OK() && report.Lines == len(m.lines) && report.Placements == len(m.placements), "want no differences, have %v", report)
		})
	}
}

// TestWithoutLock shows that the lock makes the tasks right, and that the oracle notices a missing
// lock. All tasks write under the same fence.
func TestWithoutLock(t *testing.T) {
	t.Parallel()
	report := newMix(t).work(t, filepath.Join(t.TempDir(), "ledger.db"),
		func(ctx context.Context, t queue.Guarded, try func(context.Context) error) error {
			return try(fenced(ctx, t, 1))
		})
	// Not only the fences: changes were lost.
	expect.That(t, !report.OK() && strings.Contains(report.String(), "afterwards, have"), "want lost changes among the differences, have %v", report)
}

// TestFencesAlone: tasks that overlap, each with a fence of its own, are refused
// and tried again, but never wrong. This is what is left when a lock fails.
func TestFencesAlone(t *testing.T) {
	t.Parallel()
	var fence, refused atomic.Int64
	report := newMix(t).work(t, filepath.Join(t.TempDir(), "ledger.db"),
		func(ctx context.Context, t queue.Guarded, try func(context.Context) error) error {
			for {
				err := try(fenced(ctx, t, fence.Add(1)))
				if !errors.Is(err, lock.ErrStale) {
					return err
				}
				refused.Add(1)
			}
		})
	expect.That(t, report.OK(), "want no differences, have %v", report)
	expect.That(t, refused.Load() != 0, "want tasks that overlapped and were refused, have none")
}
