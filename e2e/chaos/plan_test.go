package chaos

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidingq/siding/internal/testenv/expect"
)

// A kind of fault that is never planned would not be missed by a run.
func TestPlan(t *testing.T) {
	t.Parallel()
	const length = 4 * time.Minute
	for scenario, want := range map[Scenario]int{Standalone: 18, Sentinel: 13, Cluster: 13} {
		first := Plan(1, scenario, length)
		expect.That(t, cmp.Equal(first, Plan(1, scenario, length)) && !cmp.Equal(first, Plan(2, scenario, length)), "%s: want one plan for each seed", scenario)
		counts := make(map[Kind]int)
		for _, lane := range first {
			for _, i := range lane {
				counts[i.Kind]++
			}
		}
		expect.That(t, len(counts) == want, "%s: want %d kinds of fault, have %v", scenario, want, counts)
		for kind, n := range counts {
			expect.That(t, n >= 3, "%s: want each kind three times, have %d of %s", scenario, n, kind)
		}
	}
}
