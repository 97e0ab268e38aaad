package orders_test

import (
	stdcmp "cmp"
	"errors"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/tasks"
	"github.com/sidingq/siding/tasks/orders"
	"github.com/sidingq/siding/tasks/orders/ordertest"
)

// open returns a reader of an order file, and its rows as encoding/csv reads them.
func open(t *testing.T, path string) (*orders.Reader, [][]string) {
	t.Helper()
	f := expect.Value(os.Open(path))(t)
	t.Cleanup(func() { _ = f.Close() })
	r := expect.Value(orders.NewReader(f))(t)
	return r, ordertest.Rows(t, path)
}

// wantFewRefused fails the test if more than one line of a hundred was refused.
func wantFewRefused(t *testing.T, refused, lines int) {
	t.Helper()
	expect.That(t, refused*100 <= lines, "refused lines: want at most 1 %% of %d, have %d", lines, refused)
}

// The reader has every line of a file as it stands. Only a real file may have
// lines that are refused, and only few.
func TestFileLines(t *testing.T) {
	t.Parallel()
	for name, file := range ordertest.Files(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, rows := open(t, file(t))
			refused := 0
			for i, row := range rows {
				l, err := r.Next()
				if bad, ok := errors.AsType[*orders.LineError](err); ok && name == "real" {
					t.Log(bad)
					refused++
					continue
				}
				expect.Need(t, err == nil, "%q: want no error, have %v", row, err)
				have := []string{
					l.Order, l.SKU, l.Description, strconv.FormatInt(l.Quantity, 10), l.Time.Format("2006-01-02T15:04:05"), row[5], l.Customer, l.Country,
				}
				diff := cmp.Diff(row, have)
				expect.Need(t, diff == "", "line %d (-want +have):\n%s", i+2, diff)
				want := price(t, row)
				expect.Need(t, l.Price == want, "line %d: want a price of %v, have %v", i+2, want, l.Price)
				expect.Need(t, l.Number == i+2 && l.Cancellation() == cancels(row) && l.Goods() == goods(row), "%q: want line %d, have %+v", row, i+2, l)
			}
			expect.Is(t, "at the end", expect.Err(r.Next()), io.EOF)
			wantFewRefused(t, refused, len(rows))
		})
	}
}

// totals are what a plan comes to.
type totals struct {
	Kinds   map[string]int
	Longest int // lines of an order
	Units   int64
	Debited tasks.Money
	Counts  orders.Counts
}

// The plan has the tasks that the lines and orders of a file ask for. Only a real
// file may have lines that are refused, and only few.
func TestFilePlan(t *testing.T) {
	t.Parallel()
	for name, file := range ordertest.Files(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, rows := open(t, file(t))
			refused := 0
			have := totals{Kinds: make(map[string]int)}
			ids, jobs := make(map[string]bool), 0
			p := orders.NewPlan(orders.PlanConfig{Content: "c0ffee"})
			for job, err := range p.Jobs(r) {
				if bad, ok := errors.AsType[*orders.LineError](err); ok && name == "real" {
					t.Log(bad)
					rows[bad.Line-2] = nil
					refused++
					continue
				}
				expect.Need(t, err == nil, "want no line refused, have %v", err)
				jobs++
				ids[job.Options.TaskID] = true
				have.Kinds[job.Task.Kind()]++
				switch task := job.Task.(type) {
				case tasks.DeductStock:
					have.Units += task.Quantity
				case tasks.DebitBalance:
					have.Debited += task.Amount
				case tasks.AuditOrder:
					have.Longest = max(have.Longest, task.Lines)
				}
			}
			have.Counts = p.Counts()
			expect.That(t, len(ids) == jobs, "want %d different ids, have %d", jobs, len(ids))
			wantFewRefused(t, refused, len(rows))
			expect.Same(t, "totals", have, add(t, rows))
		})
	}
}

// add works out what the plan for these rows must come to; nil ones do not count.
func add(t *testing.T, rows [][]string) totals {
	t.Helper()
	want := totals{Kinds: make(map[string]int)}
	lengths, customers := make(map[string]int), make(map[string]string)
	var last string
	var value tasks.Money // of the lines of the last order that stand together
	together := 0         // how many they are
	end := func() {
		if together == 0 {
			return
		}
		want.Kinds[tasks.AuditOrder{}.Kind()]++
		want.Longest = max(want.Longest, lengths[last])
		switch {
		case customers[last] == "":
			want.Counts.Skipped.NoCustomer++
		case value == 0:
			want.Counts.Skipped.ZeroValue++
		default:
			want.Kinds[tasks.DebitBalance{}.Kind()]++
			want.Debited += value
		}
	}
	for _, row := range rows {
		if row == nil {
			continue
		}
		number := row[0]
		quantity := expect.Value(strconv.ParseInt(row[3], 10, 64))(t)
		if number != last {
			end()
			last, value, together = number, 0, 0
			if _, again := lengths[number]; again {
				want.Counts.CameBack++
			} else {
				want.Counts.Orders++
				if cancels(row) {
					want.Counts.Cancellations++
				}
			}
		}
		want.Counts.Lines++
		customers[number] = stdcmp.Or(customers[number], row[6])
		if quantity == 0 {
			want.Counts.Skipped.ZeroQuantity++
			continue
		}
		lengths[number]++
		together++
		value += tasks.Money(quantity) * price(t, row)
		want.Kinds[tasks.AllocateLine{}.Kind()]++
		if !goods(row) {
			want.Counts.Skipped.ServiceCode++
			continue
		}
		want.Kinds[tasks.DeductStock{}.Kind()]++
		if !cancels(row) {
			quantity = max(quantity, -quantity) // a write-off leaves the shelf as well
		}
		want.Units += quantity
	}
	end()
	return want
}

// price is that of a row, worked out in another way than the reader's.
func price(t *testing.T, row []string) tasks.Money {
	t.Helper()
	pounds := expect.Value(strconv.ParseFloat(row[5], 64))(t)
	return tasks.Money(math.Round(pounds * 10_000))
}

// goods reports whether the code of a row begins with five digits.
func goods(row []string) bool {
	return len(row[1]) >= 5 && strings.Trim(row[1][:5], "0123456789") == ""
}

func cancels(row []string) bool { return row[0][0] == 'C' }
