package workload_test

import (
	"strings"
	"testing"

	"github.com/sidingq/siding/bench/internal/workload"
)

// TestInOrder has three tasks of which the second waits for the first, and the third for the second.
func TestInOrder(t *testing.T) {
	t.Parallel()
	p := workload.Plan{Workers: 2, Tasks: []workload.Task{
		{ID: 0, Key: "a", Also: "b", Work: 3}, {ID: 1, Key: "b", Also: "c", Work: 5}, {ID: 2, Key: "c", Work: 2}, {ID: 3, Key: "d", Work: 9},
	}}
	if have := p.InOrder(); have != 10 {
		t.Errorf("want 10, have %d", have)
	}
	if p.Workers = 1; p.InOrder() != 19 {
		t.Errorf("one worker: want 19, have %d", p.InOrder())
	}
	if !p.Pairs() || (workload.Plan{Tasks: p.Tasks[2:]}).Pairs() {
		t.Error("want two keys in this plan alone")
	}
}

func TestOrders(t *testing.T) {
	t.Parallel()
	const file = `InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country
1,A,x,6,2010-12-01T08:26:00,2.55,17850,UK
1,B,x,six,2010-12-01T08:26:00,2.55,17850,UK
1,C,x,6,2010-12-01T08:26:00,2.55,17850,UK
2,A,x,6,2010-12-01T08:26:00,2.55,17850,UK
`
	for lines, want := range map[int]string{
		100: "sku-A sku-C order-1 sku-A order-2",
		3:   "sku-A sku-C order-1",
	} {
		p, err := workload.Orders(strings.NewReader(file), lines)
		if err != nil {
			t.Fatal(err)
		}
		var keys []string
		for _, task := range p.Tasks {
			keys = append(keys, task.Key)
		}
		if have := strings.Join(keys, " "); have != want {
			t.Errorf("%d lines: want %s, have %s", lines, want, have)
		}
	}
	if _, err := workload.Orders(strings.NewReader("no orders"), 1); err == nil {
		t.Error("want another file refused")
	}
}
