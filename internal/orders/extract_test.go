package orders_test

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/sidingq/siding/internal/orders"
	"github.com/sidingq/siding/tasks"
)

// extract opens an extract of the public data set: six trading days with all
// their dirt. It is no part of the project, so the test is skipped without it.
func extract(t *testing.T) *orders.Reader {
	t.Helper()
	path := cmp.Or(os.Getenv("SIDING_ORDERS"), filepath.Join("..", "..", "..", "shared", "data", "online_retail_extract.csv.gz"))
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) && os.Getenv("SIDING_ORDERS") == "" {
		t.Skipf("no order data at %s; SIDING_ORDERS may name another file", path)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	r, err := orders.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// totals of the extract; what they are to be was counted by another program.
type totals struct {
	Lines, Orders, Cancellations, NoCustomer, ZeroPrice, WriteOffs, NoDescription, Services int
	Customers, SKUs, FoldedSKUs, BlanksAround                                               int
	Value                                                                                   tasks.Money
	Days                                                                                    map[string]int
}

func TestExtractTotals(t *testing.T) {
	t.Parallel()
	r := extract(t)
	have := totals{Days: make(map[string]int)}
	numbers, customers, skus, folded := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	count := func(n *int, when bool) {
		if when {
			*n++
		}
	}
	for {
		l, err := r.Next()
		if err != nil {
			if want := "EOF"; err.Error() != want {
				t.Fatalf("want no error up to the end, have %v", err)
			}
			break
		}
		have.Lines++
		count(&have.Cancellations, l.Cancellation() && !numbers[l.Order])
		count(&have.NoCustomer, l.Customer == "")
		count(&have.ZeroPrice, l.Price == 0)
		count(&have.WriteOffs, l.Quantity < 0 && !l.Cancellation())
		count(&have.NoDescription, l.Description == "")
		count(&have.Services, !l.Goods())
		count(&have.BlanksAround, strings.TrimSpace(l.Description) != l.Description)
		numbers[l.Order], skus[l.SKU], folded[strings.ToUpper(l.SKU)] = true, true, true
		if l.Customer != "" {
			customers[l.Customer] = true
		}
		have.Value += l.Price * tasks.Money(l.Quantity)
		have.Days[l.Time.Format(time.DateOnly)]++
		if l.Number != have.Lines+1 {
			t.Fatalf("want line %d, have %d", have.Lines+1, l.Number)
		}
	}
	have.Orders, have.Customers, have.SKUs, have.FoldedSKUs = len(numbers), len(customers), len(skus), len(folded)
	want := totals{
		Lines: 26938, Orders: 870, Cancellations: 104, NoCustomer: 10601, ZeroPrice: 43, WriteOffs: 22, NoDescription: 10, Services: 97,
		Customers: 596, SKUs: 2553, FoldedSKUs: 2553 - 39, BlanksAround: 6390, Value: 387280_1700,
		Days: map[string]int{"2011-11-08": 4070, "2011-11-11": 4089, "2011-11-16": 4195, "2011-11-29": 4313, "2011-12-05": 5331, "2011-12-08": 4940},
	}
	if diff := gocmp.Diff(want, have); diff != "" {
		t.Errorf("totals (-want +have):\n%s", diff)
	}
}

func TestExtractPlan(t *testing.T) {
	t.Parallel()
	p := orders.NewPlan(orders.PlanConfig{Content: "c0ffee"})
	kinds, ids := map[string]int{}, map[string]bool{}
	var units int64
	var debited tasks.Money
	longest := 0
	for job, err := range p.Jobs(extract(t)) {
		if err != nil {
			t.Fatalf("want no line refused, have %v", err)
		}
		kinds[job.Task.Kind()]++
		ids[job.Options.TaskID] = true
		switch task := job.Task.(type) {
		case tasks.DeductStock:
			units += task.Quantity
		case tasks.DebitBalance:
			debited += task.Amount
		case tasks.AuditOrder:
			longest = max(longest, task.Lines)
		}
	}
	want := map[string]int{tasks.KindAllocateLine: 26938, tasks.KindDeductStock: 26938 - 97, tasks.KindAuditOrder: 870, tasks.KindDebitBalance: 870 - 98}
	if diff := gocmp.Diff(want, kinds); diff != "" {
		t.Errorf("jobs by kind (-want +have):\n%s", diff)
	}
	if want := 26938 + 26938 - 97 + 870 + 870 - 98; len(ids) != want {
		t.Errorf("different ids: want %d, have %d", want, len(ids))
	}
	if units != 200483 || debited != 275377_3800 || longest != 749 {
		t.Errorf("want 200483 units, 275377.38 debited and 749 lines at most; have %d, %v and %d", units, debited, longest)
	}
	counts := orders.Counts{Lines: 26938, Orders: 870, Cancellations: 104, Skipped: orders.Skipped{NoCustomer: 98, ServiceCode: 97}}
	if diff := gocmp.Diff(counts, p.Counts()); diff != "" {
		t.Errorf("counts (-want +have):\n%s", diff)
	}
}
