package chaos_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidingq/siding/e2e/chaos"
)

// TestTableAddsRuns reads the lines of two runs back and adds them up.
func TestTableAddsRuns(t *testing.T) {
	t.Parallel()
	runs := []chaos.Report{
		{Seed: 1, Scenario: chaos.Standalone, Back: []time.Duration{12 * s}, Faults: map[chaos.Kind]*chaos.Account{
			chaos.KillWorker:   {Injections: 2, Tasks: 100, Repeated: 3, Recovered: []time.Duration{2 * s, 3 * s}, Idle: 2 * s},
			chaos.RestartEmpty: {Injections: 1, Tasks: 10, Lost: 40, Overlaps: 2},
		}},
		{Seed: 2, Scenario: chaos.Cluster, Wrong: []string{"two hold thing"}, Back: []time.Duration{15 * s, 14 * s}, Faults: map[chaos.Kind]*chaos.Account{
			chaos.KillWorker: {Injections: 1, Tasks: 50, Doubled: 1, Recovered: []time.Duration{1500 * ms}, Idle: 2500 * ms},
		}},
	}
	var lines strings.Builder
	for _, run := range runs {
		if err := json.NewEncoder(&lines).Encode(run); err != nil {
			t.Fatal(err)
		}
	}
	read, err := chaos.ReadReports(strings.NewReader(lines.String()))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(runs, read); diff != "" {
		t.Fatalf("reports (-want +have):\n%s", diff)
	}
	var have strings.Builder
	if err := chaos.WriteTable(&have, read); err != nil {
		t.Fatal(err)
	}
	want := `| fault | injections | tasks | lost | doubled | overlapping holds | run again | recovered p50 | max | idle |
|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|
| worker killed (kill -9) | 3 | 150 | 0 | 1 | 0 | 3 | 2.00 s | 3.00 s | 2.50 s |
| Redis killed, restarted empty | 1 | 10 | 40 | 0 | 2 | 0 |  |  | 0.00 s |
| all | 4 | 160 | 40 | 1 | 2 | 3 | 2.00 s | 3.00 s | 2.50 s |

2 runs, 1 findings. 3 guarded tasks were at work when their worker was killed and ran again after 14.00 s (p50), 15.00 s (max).
`
	if diff := cmp.Diff(want, have.String()); diff != "" {
		t.Errorf("table (-want +have):\n%s", diff)
	}
}

func TestReportsMustBeJSON(t *testing.T) {
	t.Parallel()
	if _, err := chaos.ReadReports(strings.NewReader("{}\n{")); err == nil || !strings.Contains(err.Error(), "report 2") {
		t.Errorf("want an error that names report 2, have %v", err)
	}
}
