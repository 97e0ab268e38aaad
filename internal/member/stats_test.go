package member_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidingq/siding/internal/member"
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
		{Kind: queue.EventAcquired, TaskID: "b"},
		{Kind: queue.EventReleased, TaskID: "b", Err: errors.New("no stock")},
		{Kind: queue.EventAcquired, TaskID: "c"},
		{Kind: queue.EventLost, TaskID: "c", Err: errors.New("lost")}, // in place of EventReleased
		{Kind: queue.EventStarted, TaskID: "d"},                       // without a resource
		{Kind: queue.EventFinished, TaskID: "d"},
		{Kind: queue.EventFinished, TaskID: "e", Err: errors.New("no address")},
	} {
		c.Observe(e)
	}
	want := member.Summary{Tasks: 5, Succeeded: 2, Contended: 2, Parked: 3, Lost: 1}
	if diff := cmp.Diff(want, c.Summary()); diff != "" {
		t.Errorf("(-want +have):\n%s", diff)
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
