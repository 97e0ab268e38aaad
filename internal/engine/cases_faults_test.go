package engine

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/internal/verify"
)

// back waits until all resources were at work since a time, and checks that they were within d.
func (f *fleet) back(l *ledger, resources []string, since time.Time, d time.Duration) {
	f.t.Helper()
	first := make(map[string]time.Time)
	f.eventually(func() error {
		for _, v := range l.all() {
			if at, ok := first[v.Resource]; v.began.After(since) && (!ok || v.began.Before(at)) {
				first[v.Resource] = v.began
			}
		}
		for _, resource := range resources {
			if _, ok := first[resource]; !ok {
				return errors.New("not at work again: " + resource)
			}
		}
		return nil
	})
	for _, resource := range resources {
		if took := first[resource].Sub(since); took > d {
			f.t.Errorf("%s: want it at work within %v, have it after %v", resource, d, took)
		}
	}
}

// TestRedisThatStoodStill: Redis does not answer while attempts end, or lose their locks. When it goes on, so does each
// resource.
func TestRedisThatStoodStill(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		still, lasts time.Duration
		expire       bool // on all resources attempts are at work that would go on, but lose their locks
	}{
		{still: time.Second, lasts: 15 * time.Second},
		{still: 4 * time.Second, lasts: 15 * time.Second},
		{still: 8 * time.Second, lasts: 15 * time.Second},
		{still: 12 * time.Second, lasts: 15 * time.Second},
		{still: 16 * time.Second, lasts: 15 * time.Second, expire: true},
		{still: 2 * time.Second, lasts: 1500 * time.Millisecond},
		{still: 2 * time.Second, lasts: 1500 * time.Millisecond, expire: true},
	} {
		t.Run(fmt.Sprintf("%v, TTL %v, expire %v", test.still, test.lasts, test.expire), func(t *testing.T) {
			t.Parallel()
			if test.still > 4*time.Second {
				verify.Long(t)
			}
			server := redistest.Start(t)
			f, l, resources := on(t, server), newLedger(t), names(12)
			f.crowd("q", 200, resources...)
			still := make(chan struct{})
			work := func(task *Task) time.Duration {
				select {
				case <-still:
				default:
					if test.expire {
						return time.Minute
					}
				}
				return 50*time.Millisecond + time.Duration(task.Taken.Fence%400)*time.Millisecond
			}
			for range 3 {
				f.node(l, work, ttl(test.lasts))
			}
			f.eventually(l.begun(len(resources)))
			server.Pause()
			close(still)
			_ = sleep.For(t.Context(), test.still)
			on := time.Now()
			server.Resume()
			f.back(l, resources, on, time.Second)
		})
	}
}
