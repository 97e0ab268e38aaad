package e2e

import (
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/tasks/orders/ordertest"
)

// The stock codes of a shop are spread evenly over shards.
func TestSpreadOfResources(t *testing.T) {
	t.Parallel()
	for name, file := range ordertest.Files(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "real" {
				verify.Long(t)
			}
			seen := make(map[string]bool)
			var jobs []queue.Job
			for _, row := range ordertest.Rows(t, file(t)) {
				if code := row[1]; !seen[code] {
					seen[code] = true
					jobs = append(jobs, queue.Job{Task: stocked(code)})
				}
			}
			rdb := redistest.Start(t).Client(t)
			for _, n := range []int{2, 10, 16} {
				client := expect.Value(queue.NewClient(rdb, queue.ClientConfig{Shards: map[string]int{"default": n}}))(t)
				results := expect.Value(client.EnqueueBatch(t.Context(), jobs))(t)
				counts := make(map[string]int)
				for _, r := range results {
					if r.Err != nil {
						t.Fatal(r.Err)
					}
					counts[r.Queue]++
				}
				mean := float64(len(jobs)) / float64(n)
				least, most := slices.Min(slices.Collect(maps.Values(counts))), slices.Max(slices.Collect(maps.Values(counts)))
				t.Logf("%d stock codes on %d shards: %d to %d", len(jobs), n, least, most)
				// Chance exceeds six standard deviations once in 10^7 files.
				bound := 6 * math.Sqrt(mean*(1-1/float64(n)))
				if name == "real" {
					bound = min(bound, mean/4)
				}
				if off := max(float64(most)-mean, mean-float64(least)); len(counts) != n || off > bound {
					t.Errorf("%d stock codes: want %.0f ± %.0f on each of %d shards, have %v", len(jobs), mean, bound, n, counts)
				}
			}
		})
	}
}

// A stocked task works on the product of a stock code.
type stocked string

func (stocked) Kind() string       { return "test:stocked" }
func (s stocked) Resource() string { return "sku:" + string(s) }
