package chaos

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/queue"
)

func TestJournal(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal")
	j := expect.Value(OpenJournal(path))(t)
	start := Now()
	one := j.Begin("a", "thing", 10, 3)
	two := j.Begin("b", "", 0, 0)
	j.Begin("c", "thing", 20, 0) // and then the process is killed
	j.write(entry{What: "requeued", Task: "d"})
	j.write(entry{What: "ended", End: queue.EventCoalesced, Task: "e", Other: "f"})
	j.write(entry{What: "lost", Run: one})
	j.write(entry{What: "returned", Run: two, Outcome: Done})
	j.write(entry{What: "returned", Run: one, Outcome: Ended})

	var h History
	expect.OK(t, h.ReadJournal(path, "w1"))
	have := h.Runs
	want := []Run{
		{Task: "a", Process: "w1", Resource: "thing", Fence: 10, Retried: 3, Outcome: Ended},
		{Task: "b", Process: "w1", Outcome: Done},
		{Task: "c", Process: "w1", Resource: "thing", Fence: 20},
	}
	if diff := cmp.Diff(want, have, cmpopts.IgnoreFields(Run{}, "Begin", "Lost", "Returned")); diff != "" {
		t.Errorf("runs (-want +have):\n%s", diff)
	}
	a, b, c := have[0], have[1], have[2]
	expect.Need(t, len(h.Requeued) == 1 && h.Requeued[0].Task == "d", "want d requeued, have %+v", h.Requeued)
	ends := []End{{By: queue.EventCoalesced, Task: "e", Other: "f", Process: "w1"}}
	if diff := cmp.Diff(ends, h.Ends, cmpopts.IgnoreFields(End{}, "At")); diff != "" {
		t.Fatalf("ends (-want +have):\n%s", diff)
	}
	order := []time.Duration{start, a.Begin, b.Begin, c.Begin, h.Requeued[0].At, h.Ends[0].At, a.Lost, b.Returned, a.Returned, Now()}
	expect.That(t, slices.IsSorted(order), "want times that grow, have %v", order)
	expect.That(t, b.Lost == 0 && c.Lost == 0 && c.Returned == 0, "want no times of what did not happen, have %+v and %+v", b, c)
}
