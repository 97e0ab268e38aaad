package chaos

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPeace(t *testing.T) {
	t.Parallel()
	for at, want := range map[time.Duration]time.Duration{
		0: 0, 20 * s: 0, 44 * s: 0, 45 * s: 15 * s, 59 * s: s, 60 * s: 0, 104 * s: 0, 110 * s: 10 * s,
	} {
		if have := Peace(at); have != want {
			t.Errorf("at %v: want peace for %v, have %v", at, want, have)
		}
	}
}

func TestPlanIsReplayable(t *testing.T) {
	t.Parallel()
	const length = 4 * time.Minute
	for _, scenario := range []Scenario{Standalone, Sentinel, Cluster} {
		first := Plan(1, scenario, length)
		if diff := cmp.Diff(first, Plan(1, scenario, length)); diff != "" {
			t.Errorf("%s: two plans of one seed differ:\n%s", scenario, diff)
		}
		if cmp.Equal(first, Plan(2, scenario, length)) {
			t.Errorf("%s: want another plan for another seed", scenario)
		}
		counts := make(map[Kind]int)
		for _, lane := range first {
			end := time.Duration(0)
			for _, i := range lane {
				if i.At < end || i.At+i.For > length {
					t.Errorf("%s: %+v does not fit between %v and %v", scenario, i, end, length)
				}
				end = i.At + i.For
				counts[i.Kind]++
			}
		}
		want := 13
		if scenario == Standalone {
			want = 18
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
