package workload_test

import (
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
