package orders_test

import (
	"errors"
	"io"
	"math"
	"os"
	"slices"
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
	r := expect.Value(readerOf(f))(t)
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
				want := append(slices.Clone(row[:4]), row[6]) // the other columns are no fields, but for the price
				have := []string{l.Order, l.SKU, l.Description, strconv.FormatInt(l.Quantity, 10), l.Customer}
				if diff := cmp.Diff(want, have); diff != "" {
					t.Fatalf("line %d (-want +have):\n%s", i+2, diff)
				}
				if want := price(t, row); l.Price != want {
					t.Fatalf("line %d: want a price of %v, have %v", i+2, want, l.Price)
				}
				expect.Need(t, l.Number == i+2 && l.Cancellation() == cancels(row) && l.Goods() == goods(row), "%q: want line %d, have %+v", row, i+2, l)
			}
			expect.Is(t, "at the end", expect.Err(r.Next()), io.EOF)
			wantFewRefused(t, refused, len(rows))
		})
	}
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
