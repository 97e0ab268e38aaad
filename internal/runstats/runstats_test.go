package runstats_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidingq/siding/internal/runstats"
	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/queue"
)

func TestSummary(t *testing.T) {
	t.Parallel()
	var c runstats.Collector
	if diff := cmp.Diff(runstats.Summary{}, c.Summary()); diff != "" {
		t.Errorf("without events (-want +have):\n%s", diff)
	}
	for _, e := range []queue.Event{
		{Kind: queue.EventAcquired, TaskID: "a"},
		{Kind: queue.EventParked, TaskID: "b", Refusals: 1},
		{Kind: queue.EventParked, TaskID: "c", Refusals: 1},
		{Kind: queue.EventParked, TaskID: "c", Refusals: 2},
		{Kind: queue.EventReleased, TaskID: "a"},
		{Kind: queue.EventAcquired, TaskID: "b", HandOff: 20 * time.Microsecond},
		{Kind: queue.EventReleased, TaskID: "b", Err: errors.New("no stock")},
		{Kind: queue.EventAcquired, TaskID: "c", HandOff: 30 * time.Microsecond},
		{Kind: queue.EventLost, TaskID: "c"},
		{Kind: queue.EventReleased, TaskID: "c", Err: errors.New("lost")},
	} {
		c.Observe(e)
	}
	want := runstats.Summary{
		Tasks: 3, Succeeded: 1, Contended: 2, Refused: 3, Lost: 1,
		HandOffs: 2, HandOffP50: 20 * time.Microsecond, HandOffP99: 30 * time.Microsecond,
	}
	if diff := cmp.Diff(want, c.Summary()); diff != "" {
		t.Errorf("(-want +have):\n%s", diff)
	}
}

// The figures must agree with those of the sorted values.
func TestQuantiles(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(verify.Seed(t), 0))
	for _, most := range []time.Duration{31 * time.Microsecond, time.Millisecond, 10 * time.Second, 250 * time.Hour} {
		var c runstats.Collector
		values := make([]time.Duration, 10_000)
		for i := range values {
			values[i] = time.Microsecond + time.Duration(rng.Int64N(int64(most)))
			c.Observe(queue.Event{Kind: queue.EventAcquired, HandOff: values[i]})
		}
		slices.Sort(values)
		have := c.Summary()
		for name, pair := range map[string][2]time.Duration{
			"p50": {values[4_999], have.HandOffP50},
			"p99": {values[9_899], have.HandOffP99},
		} {
			want, have := pair[0].Truncate(time.Microsecond), pair[1]
			if have < want || float64(have-want) > float64(want)/32 {
				t.Errorf("%s up to %v: want %v, at most 1/32 more, have %v", name, most, want, have)
			}
		}
	}
}

func TestDurationsOutOfRange(t *testing.T) {
	t.Parallel()
	var c runstats.Collector
	c.Observe(queue.Event{Kind: queue.EventAcquired, HandOff: math.MaxInt64})
	if have := c.Summary().HandOffP99; have < 250*time.Hour {
		t.Errorf("want the longest class, have %v", have)
	}
}

func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	var c runstats.Collector
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				c.Observe(queue.Event{Kind: queue.EventParked, Refusals: 1})
				_ = c.Summary()
			}
		})
	}
	wg.Wait()
	if have := c.Summary().Refused; have != 8000 {
		t.Errorf("want 8000 refusals, have %d", have)
	}
}
