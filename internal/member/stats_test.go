package member_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidingq/siding/internal/member"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/queue"
)

func TestSummary(t *testing.T) {
	t.Parallel()
	var c member.Collector
	if diff := cmp.Diff(member.Summary{}, c.Summary()); diff != "" {
		t.Errorf("without events (-want +have):\n%s", diff)
	}
	for _, e := range []queue.Event{
		{Kind: queue.EventAcquired, TaskID: "a"},
		{Kind: queue.EventParked, TaskID: "b", Parked: 1},
		{Kind: queue.EventParked, TaskID: "c", Parked: 1},
		{Kind: queue.EventParked, TaskID: "c", Parked: 2},
		{Kind: queue.EventReleased, TaskID: "a"},
		{Kind: queue.EventAcquired, TaskID: "b", HandOff: 20 * time.Microsecond},
		{Kind: queue.EventReleased, TaskID: "b", Err: errors.New("no stock")},
		{Kind: queue.EventAcquired, TaskID: "c", HandOff: 30 * time.Microsecond},
		{Kind: queue.EventLost, TaskID: "c", Err: errors.New("lost")}, // in place of EventReleased
		{Kind: queue.EventStarted, TaskID: "d"},                       // without a resource
		{Kind: queue.EventFinished, TaskID: "d"},
		{Kind: queue.EventFinished, TaskID: "e", Err: errors.New("no address")},
	} {
		c.Observe(e)
	}
	have := c.Summary()
	expect.That(t, near(20*time.Microsecond, have.HandOffP50) && near(30*time.Microsecond, have.HandOffP99), "want hand-offs of 20 and 30 µs, have %d and %d", have.HandOffP50, have.HandOffP99)
	have.HandOffP50, have.HandOffP99 = 0, 0
	want := member.Summary{Tasks: 5, Succeeded: 2, Contended: 2, Parked: 3, Lost: 1}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("(-want +have):\n%s", diff)
	}
}

// near reports whether a figure in whole µs is the value, or up to 3 % more.
func near(value time.Duration, us int64) bool {
	more := time.Duration(us)*time.Microsecond - value
	return more > -time.Microsecond && float64(more) <= 0.031*float64(value)
}

// The figures must agree with those of the sorted values.
func TestQuantiles(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(verify.Seed(t), 0))
	for _, most := range []time.Duration{31 * time.Microsecond, time.Millisecond, 10 * time.Second, 250 * time.Hour} {
		var c member.Collector
		values := make([]time.Duration, 10_000)
		for i := range values {
			values[i] = time.Microsecond + time.Duration(rng.Int64N(int64(most)))
			c.Observe(queue.Event{Kind: queue.EventAcquired, HandOff: values[i]})
		}
		slices.Sort(values)
		have := c.Summary()
		if p50, p99 := values[4_999], values[9_899]; !near(p50, have.HandOffP50) || !near(p99, have.HandOffP99) {
			t.Errorf("up to %v: want %v and %v, at most 3 %% more, have %d and %d µs", most, p50, p99, have.HandOffP50, have.HandOffP99)
		}
	}
}

func TestDurationsOutOfRange(t *testing.T) {
	t.Parallel()
	var c member.Collector
	c.Observe(queue.Event{Kind: queue.EventAcquired, HandOff: math.MaxInt64})
	if have := c.Summary().HandOffP99; have < (250 * time.Hour).Microseconds() {
		t.Errorf("want the longest class, have %d µs", have)
	}
}

func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	var c member.Collector
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				c.Observe(queue.Event{Kind: queue.EventParked, Parked: 1})
				_ = c.Summary()
			}
		})
	}
	wg.Wait()
	if have := c.Summary().Parked; have != 8000 {
		t.Errorf("want 8000 times, have %d", have)
	}
}
