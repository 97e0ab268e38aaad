package workload_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidingq/siding/bench/internal/workload"
)

// TestPlans counts what plans of full size have.
func TestPlans(t *testing.T) {
	t.Parallel()
	type counts struct{ Tasks, Alone, Keys int }
	for name, tc := range map[string]struct {
		plan  func(float64) workload.Plan
		want  counts
		ideal time.Duration
	}{
		"mixed":            {workload.Mixed, counts{2200, 2000, 2001}, 2 * time.Second},
		"hot":              {workload.Hot, counts{2000, 0, 1}, 0},
		"uncontended":      {workload.Uncontended, counts{20_000, 20_000, 20_000}, 0},
		"transfers":        {workload.Transfers, counts{2000, 0, 49}, 1000 * time.Millisecond},
		"limit":            {workload.Limit, counts{500, 0, 1}, 2 * time.Second},
		"rate":             {workload.Rate, counts{400, 0, 1}, 0},
		"long":             {workload.Long, counts{2000, 1000, 1001}, 10 * time.Second},
		"backlog":          {workload.Backlog, counts{100_200, 100_000, 100_001}, time.Second},
		"behind alone":     {workload.BehindAlone, counts{1000, 1000, 1000}, 250 * time.Millisecond},
		"behind":           {workload.Behind, counts{101_000, 1000, 1001}, 250 * time.Millisecond},
		"bystanders alone": {workload.BystandersAlone, counts{2000, 2000, 2000}, 5*time.Second - 500*time.Microsecond},
		"bystanders":       {workload.Bystanders, counts{2350, 2000, 2001}, 5250 * time.Millisecond},
	} {
		p := tc.plan(1)
		have := counts{Tasks: len(p.Tasks)}
		keys := make(map[string]bool)
		for i, alone := range p.Alone() {
			keys[p.Tasks[i].Key] = true
			if alone {
				have.Alone++
			}
		}
		have.Keys = len(keys)
		if diff := cmp.Diff(tc.want, have); diff != "" {
			t.Errorf("%s (-want +have):\n%s", name, diff)
		}
		if p.Ideal() != tc.ideal {
			t.Errorf("%s: want at least %v, have %v", name, tc.ideal, p.Ideal())
		}
		checkOrder(t, name, p)
		checkOrder(t, name+", small", tc.plan(0.001))
		if diff := cmp.Diff(p, tc.plan(1)); diff != "" {
			t.Errorf("%s: want the same plan each time:\n%s", name, diff)
		}
	}
}

// checkOrder: ids are places, and no task is due before the one before it.
func checkOrder(t *testing.T, name string, p workload.Plan) {
	t.Helper()
	last := time.Duration(0)
	for i, task := range p.Tasks {
		if task.ID != i || task.Key == "" || task.At < last {
			t.Fatalf("%s: want task %d in its place, have %+v after %v", name, i, task, last)
		}
		last = task.At
	}
	if len(p.Tasks) < 4 {
		t.Errorf("%s: want some tasks, have %d", name, len(p.Tasks))
	}
}

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
	if !p.Pairs() || workload.Hot(1).Pairs() {
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
