package engine

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/testenv/expect"
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
		took := first[resource].Sub(since)
		expect.That(f.t, took <= d, "%s: want it at work within %v, have it after %v", resource, d, took)
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

// TestFailoverThatLosesWrites: the new master has not heard of the last steps. For it, attempts that have ended are still
// at work and hold their locks. Each resource is at work within 3 s, also that of a server which has nothing else to do.
func TestFailoverThatLosesWrites(t *testing.T) {
	t.Parallel()
	t.Run("the master dies", func(t *testing.T) { testFailover(t, (*redistest.Server).Kill) })
	t.Run("the master stands still", func(t *testing.T) {
		verify.Long(t)
		testFailover(t, (*redistest.Server).Pause)
	})
}

func testFailover(t *testing.T, end func(master *redistest.Server)) {
	t.Helper()
	t.Parallel()
	sentinel := redistest.StartSentinel(t)
	f, l, resources := on(t, sentinel.Servers[0]), newLedger(t), names(12)
	l.twice = true
	f.rdb = sentinel.Client(t).(*redis.Client) //nolint:forcetypeassert // it is one
	behind := func(c *Config) { c.Redis = sentinel.Client(t) }

	var cut atomic.Bool
	work := func(task *Task) time.Duration {
		if task.Queue == "solo" {
			expect.Eventually(t, "the replicas cut off", cut.Load)
			return 100 * time.Millisecond
		}
		return time.Duration(20+task.Taken.Fence%100) * time.Millisecond
	}
	f.crowd("solo", 1, resources[0])
	f.node(l, work, behind, serves("solo"))
	f.eventually(l.begun(1))
	f.crowd("q", 300, resources...)
	for range 2 {
		f.node(l, work, behind, slots(8))
	}
	f.eventually(l.begun(60))

	master, replicas := sentinel.Servers[0], sentinel.Servers[1:]
	for _, replica := range replicas {
		replica.Pause()
	}
	// What the master has sent so far is with the replicas, who read it later. There is no more of it.
	expect.OK(t, master.Client(t).ClientKillByFilter(t.Context(), "TYPE", "replica").Err())
	from := len(l.all())
	cut.Store(true)
	_ = sleep.For(t.Context(), 700*time.Millisecond)
	lost := len(l.all()) - from
	end(master)
	for _, replica := range replicas {
		replica.Resume()
	}
	var promoted time.Time
	clients := []*redis.Client{replicas[0].Client(t), replicas[1].Client(t)}
	f.eventually(func() error {
		for _, client := range clients {
			if info, err := client.Info(t.Context(), "replication").Result(); err == nil && strings.Contains(info, "role:master") {
				promoted = time.Now()
				return nil
			}
		}
		return errors.New("want a new master")
	})
	t.Logf("%d attempts began on the old master that the new one has not heard of", lost)
	f.back(l, resources, promoted, 3*time.Second)
}
