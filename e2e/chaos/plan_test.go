package chaos

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A kind of fault that is never planned would not be missed by a run.
func TestPlan(t *testing.T) {
	t.Parallel()
	const length = 4 * time.Minute
	for scenario, want := range map[Scenario]int{Standalone: 18, Sentinel: 13, Cluster: 13} {
		first := Plan(1, scenario, length)
		if !cmp.Equal(first, Plan(1, scenario, length)) || cmp.Equal(first, Plan(2, scenario, length)) {
			t.Errorf("%s: want one plan for each seed", scenario)
		}
		counts := make(map[Kind]int)
		for _, lane := range first {
			for _, i := range lane {
				counts[i.Kind]++
			}
		}
		if len(counts) != want {
			t.Errorf("%s: want %d kinds of fault, have %v", scenario, want, counts)
		}
		for kind, n := range counts {
			if n < 3 {
				t.Errorf("%s: want each kind three times, have %d of %s", scenario, n, kind)
			}
		}
	}
}
