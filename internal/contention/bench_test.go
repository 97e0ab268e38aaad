package contention_test

import (
	"testing"
	"time"

	"github.com/sidingq/siding/internal/contention"
	"github.com/sidingq/siding/queue"
)

var waited = queue.Event{
	Kind: queue.EventAcquired, TaskID: "7f4a", TaskKind: "order:audit", Queue: "default", Resource: "order:536365",
	Waited: time.Second, Via: queue.ViaHandOff,
}

// A wait that is like an earlier one costs no memory.
func TestObserveAllocatesNothing(t *testing.T) { //nolint:paralleltest // counts what the process allocates
	p := contention.New()
	p.Observe(waited)
	if have := testing.AllocsPerRun(100, func() { p.Observe(waited) }); have != 0 {
		t.Errorf("want 0 allocations, have %v", have)
	}
}

func BenchmarkObserve(b *testing.B) {
	p := contention.New()
	b.ReportAllocs()
	for b.Loop() {
		p.Observe(waited)
	}
}
