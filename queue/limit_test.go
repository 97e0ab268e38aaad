package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// A crowd is a handler whose tasks may run at the same time.
type crowd struct {
	mu      sync.Mutex
	inside  int
	most    int
	started []int   // jobs, in order
	fences  []int64 // in the same order, which are the times of the starts by Redis's clock
	gate    chan struct{}
}

func newCrowd() *crowd { return &crowd{gate: make(chan struct{})} }

// run waits until the gate lets a task go, or is closed.
func (c *crowd) run(ctx context.Context, j job) error {
	c.mu.Lock()
	c.inside++
	c.most = max(c.most, c.inside)
	c.started = append(c.started, j.N)
	c.fences = append(c.fences, lock.Fence(ctx, j.Res))
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.inside--
	}()
	select {
	case <-c.gate:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *crowd) state() (inside, most int, started []int, fences []int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inside, c.most, slices.Clone(c.started), slices.Clone(c.fences)
}

func (c *crowd) awaitInside(t *testing.T, n int) {
	t.Helper()
	poll.Eventually(t, fmt.Sprintf("%d tasks at work", n), func() bool {
		inside, _, _, _ := c.state()
		return inside == n
	})
}

// setLimit overrides the limit of the bundle's resource.
func (b *bundle) setLimit(t *testing.T, holders int) {
	t.Helper()
	err := queue.SetLimit(t.Context(), b.rdb, queue.LimitOverride{Pattern: b.resource, Holders: holders, By: "alice", Reason: "stock count"})
	must(t, err)
}

// So many tasks of a resource run at once as its limit says, in the order in which they came.
func TestLimit(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		t.Helper()
		c, j := newCrowd(), &journal{}
		b.serve(t, queue.ServerConfig{Observe: j.observe, Limits: map[string]queue.Limit{"res:*": {Holders: 3}}}, c.run)
		const tasks = 12
		ids := make([]string, tasks)
		for i := range tasks {
			ids[i] = b.enqueue(t, b.job(i), queue.Options{Retries: queue.NoRetries})
			if i < 3 {
				c.awaitInside(t, i+1) // several workers may ask for a free permit in any order
			}
		}
		for i := range tasks {
			c.awaitInside(t, min(3, tasks-i))
			poll.Eventually(t, "the others parked", func() bool { return len(b.waiters(t)) == max(0, tasks-3-i) })
			c.gate <- struct{}{}
		}
		b.awaitGone(t, ids...)
		_, most, started, fences := c.state()
		slices.Sort(fences) // handlers that start at the same time come here in any order
		if most != 3 || len(started) != tasks || len(slices.Compact(fences)) != tasks {
			t.Errorf("want 3 at once and a fence for each, have %d, order %v, fences %v", most, started, fences)
		}
		for i, n := range started {
			if i > n+3 || n > i+3 {
				t.Errorf("want the order of arrival, have %v", started)
			}
		}
		handedOff := 0
		for _, e := range j.of(queue.EventAcquired, "") {
			if e.HandOff > 0 {
				handedOff++
			}
		}
		if handedOff < tasks-4 {
			t.Errorf("want %d tasks handed off, have %d", tasks-3, handedOff)
		}
	})
}

// An operator raises, lowers and removes a limit, and pauses the resource, while tasks of others run.
func TestSetLimit(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		t.Helper()
		c, j := newCrowd(), &journal{}
		b.serve(t, queue.ServerConfig{Observe: j.observe}, c.run)
		for i := range 30 {
			b.enqueue(t, b.job(i))
		}
		c.awaitInside(t, 1)
		b.setLimit(t, 4)
		next := time.Now()
		poll.Eventually(t, "4 tasks at work", func() bool {
			inside, _, _, _ := c.state()
			if inside == 1 && time.Now().After(next) { // it has the whole lock, from before the server knew of the limit
				c.gate <- struct{}{}
				next = time.Now().Add(300 * time.Millisecond)
			}
			return inside == 4
		})
		raised := time.Now()
		b.setLimit(t, 6)
		c.awaitInside(t, 6)
		t.Logf("a raised limit took %v", time.Since(raised))

		b.setLimit(t, 0)
		var waiting []string
		poll.Eventually(t, "a task parked by the pause", func() bool {
			id := b.enqueue(t, b.job(10+len(waiting)))
			waiting = append(waiting, id)
			return strings.Contains(j.await(t, queue.EventParked, id, 1).Err.Error(), "alice paused it: stock count")
		})
		other := b.enqueue(t, job{Res: "other:" + b.queue, N: 100})
		j.await(t, queue.EventAcquired, other, 1)
		for range 7 { // the six and the other
			c.gate <- struct{}{}
		}
		c.awaitInside(t, 0)
		poll.Eventually(t, "a task parked by the pause alone", func() bool { // the last holder releases its lock first
			id := b.enqueue(t, b.job(50))
			waiting = append(waiting, id)
			return strings.Contains(j.await(t, queue.EventParked, id, 1).Err.Error(), "alice paused it: stock count")
		})
		steadily(t, 1500*time.Millisecond, "no task while the resource is paused", func() bool {
			inside, _, _, _ := c.state()
			return inside == 0
		})

		removed := time.Now()
		if was, err := queue.UnsetLimit(t.Context(), b.rdb, "", b.resource); !was || err != nil {
			t.Fatalf("want the limit removed, have %v and %v", was, err)
		}
		c.awaitInside(t, 1)
		t.Logf("the end of a pause took %v", time.Since(removed))
		steadily(t, 200*time.Millisecond, "one task at a time", func() bool {
			inside, _, _, _ := c.state()
			return inside == 1
		})
		close(c.gate)
		b.awaitGone(t, waiting...)
	})
}

// Tasks start as often as the rates allow, at the time at which they allow it, and never more often.
func TestRates(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		t.Helper()
		c, j := newCrowd(), &journal{}
		close(c.gate)
		const tasks, starts, period = 40, 10, 400 * time.Millisecond
		b.serve(t, queue.ServerConfig{Observe: j.observe, Limits: map[string]queue.Limit{
			"res:*": {Holders: 5, Rates: []lock.Rate{{Starts: starts, Period: period}, {Starts: 1000, Period: time.Hour}}},
		}}, c.run)
		b.awaitGone(t, b.enqueueJobs(t, 1, tasks, queue.Options{Retries: queue.NoRetries})...)
		_, most, _, at := c.state()
		slices.Sort(at)
		var late time.Duration
		for i := starts; i < len(at); i++ {
			took := time.Duration(at[i]-at[i-starts]) * time.Microsecond
			if took < period-time.Millisecond { // a fence is the time of its start, to a few us
				t.Fatalf("want at most %d starts in %v, have one more after %v", starts, period, took)
			}
			late = max(late, took-period)
		}
		if most > 5 {
			t.Errorf("want at most 5 at once, have %d", most)
		}
		for _, e := range j.of(queue.EventAcquired, "") {
			if e.Via == queue.ViaRecovery {
				t.Errorf("want no task to come by recovery, have %+v", e)
			}
		}
		t.Logf("%d starts took %v, at best %v; the latest came %v after its time", tasks, time.Duration(at[tasks-1]-at[0])*time.Microsecond, (tasks/starts-1)*period, late)
	})
}

// A task whose worker dies keeps its permit until its TTL. It is recovered then, and not while it may be
// at work, although there are free permits, or although no rule is left for its resource.
func TestKilledHolderOfAPermit(t *testing.T) {
	t.Parallel()
	three := map[string]queue.Limit{"res:*": {Holders: 3}}
	for name, limits := range map[string]map[string]queue.Limit{"with the limit": three, "after the limit": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, st, j := setup(t), newStage(t), &journal{}
			st.permits = true
			var victim mortal
			victim.guardConfig.Limits, victim.guardConfig.Lock = three, shortTimes
			victim.serve(t, b, st)
			other, zombie := st.hold(1), st.hold(0)
			otherID := b.enqueue(t, b.job(1)) // its permit may be the first to expire
			within(t, patience, "another holder", other.entered)
			id := b.enqueue(t, b.job(0))
			within(t, patience, "the holder", zombie.entered)
			again := st.hold(0)
			b.serve(t, queue.ServerConfig{Observe: j.observe, Limits: limits, Lock: shortTimes}, st.run)
			steadily(t, 2*time.Second, "the task left alone while it holds its permit", func() bool {
				b.silence(t, id) // time and again, as the holder renews it
				return len(j.of(queue.EventRecovered, id)) == 0
			})
			victim.dead.Store(true)
			b.silence(t, otherID)
			j.await(t, queue.EventRecovered, id, 1)
			within(t, patience, "the second attempt", again.entered)
			again.open()
			b.awaitGone(t, id)
			zombie.open()
			other.open()
		})
	}
}

func TestLimitsAreChecked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const pattern = `want a resource, a pattern that ends in ":*" such as "account:*", or "*", have `
	for want, limits := range map[string]map[string]queue.Limit{
		pattern + `"acc*"`: {"acc*": {}},
		"account:1: holders: want 0 to 1000, have -1":   {"account:1": {Holders: -1}},
		"account:*: holders: want 0 to 1000, have 1001": {"account:*": {Holders: 1001}},
		"a: rates: starts: want 1 to 10000, have 0":     {"a": {Rates: []lock.Rate{{Period: time.Second}}}},
	} {
		if err := (queue.ServerConfig{Limits: limits}).Validate(); fmt.Sprint(err) != "queue: limits: "+want {
			t.Errorf("want %q, have %v", want, err)
		}
	}
	for want, o := range map[string]queue.LimitOverride{
		"pattern: " + pattern + `"*:1"`:       {Pattern: "*:1"},
		"r: holders: want 0 to 1000, have -1": {Pattern: "r", Holders: -1, By: "a", Reason: "b"},
		"r: by: want a text, have none":       {Pattern: "r"},
		"r: reason: want a text, have none":   {Pattern: "r", By: "a"},
	} {
		if err := queue.SetLimit(t.Context(), b.rdb, o); fmt.Sprint(err) != "queue: set limit: "+want {
			t.Errorf("want %q, have %v", want, err)
		}
	}
}

func TestLimitsAreListed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	prefix := "test-" + b.queue + ":"
	have, err := queue.Limits(t.Context(), b.rdb, prefix)
	if err != nil || len(have) != 0 {
		t.Fatalf("want none, have %v and %v", have, err)
	}
	for _, pattern := range []string{"b:*", "a:1"} {
		o := queue.LimitOverride{Pattern: pattern, Prefix: prefix, Holders: 7, Rates: []lock.Rate{{Starts: 2, Period: time.Second}}, By: "alice", Reason: "a test"}
		must(t, queue.SetLimit(t.Context(), b.rdb, o))
	}
	have, err = queue.Limits(t.Context(), b.rdb, prefix)
	if err != nil || len(have) != 2 || have[0].Pattern != "a:1" || have[1].Holders != 7 || have[1].Rates[0].Starts != 2 || have[1].By != "alice" || time.Since(have[1].At) > time.Minute {
		t.Fatalf("want two, have %+v and %v", have, err)
	}
	if was, err := queue.UnsetLimit(t.Context(), b.rdb, prefix, "c"); was || err != nil {
		t.Errorf("want no such limit, have %v and %v", was, err)
	}
	b.rdb.HSet(t.Context(), "siding:limits:"+prefix, "b:*", "{")
	if have, err = queue.Limits(t.Context(), b.rdb, prefix); err == nil || len(have) != 1 {
		t.Errorf("want an error and the other limit, have %v and %v", have, err)
	}
}

// A limit that cannot be read stops nobody, and is logged.
func TestUnreadableLimit(t *testing.T) {
	t.Parallel()
	b, c, logs := setup(t), newCrowd(), newLogs(t)
	prefix := "test-" + b.queue + ":"
	b.rdb.HSet(t.Context(), "siding:limits:"+prefix, "res:*", "x")
	close(c.gate)
	b.serve(t, queue.ServerConfig{Logger: logs.logger, Lock: lock.Config{Prefix: prefix}}, c.run)
	b.awaitGone(t, b.enqueue(t, b.job(1)))
	poll.Eventually(t, "a line in the log", func() bool { return len(logs.lines("last known ones hold")) > 0 })
}

// A pause holds while the overrides cannot be read, be it all of them or the pause alone.
func TestPauseThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string][]any{"all": {"set", "no hash"}, "the pause": {"hset", "res:*", "x"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, c, j, logs := setup(t), newCrowd(), &journal{}, newLogs(t)
			close(c.gate)
			prefix := "test-" + b.queue + ":"
			o := queue.LimitOverride{Pattern: "res:*", Prefix: prefix, By: "alice", Reason: "stock count"}
			must(t, queue.SetLimit(t.Context(), b.rdb, o))
			b.serve(t, queue.ServerConfig{Observe: j.observe, Logger: logs.logger, Lock: lock.Config{Prefix: prefix}}, c.run)
			j.await(t, queue.EventParked, b.enqueue(t, b.job(0)), 1)
			must(t, b.rdb.Do(t.Context(), slices.Insert(spoil, 1, any("siding:limits:"+prefix))...).Err())
			poll.Eventually(t, "a line in the log", func() bool { return len(logs.lines("last known ones hold")) > 0 })
			id := b.enqueue(t, b.job(1))
			if e := j.await(t, queue.EventParked, id, 1); !strings.Contains(e.Err.Error(), "alice paused it: stock count") {
				t.Errorf("want the pause, have %v", e.Err)
			}
			if _, most, _, _ := c.state(); most != 0 {
				t.Errorf("want no task at work, have %d", most)
			}
			b.rdb.Del(t.Context(), "siding:limits:"+prefix)
			b.awaitGone(t, id)
		})
	}
}

// A handler that takes a second lock keeps to its limit, too.
func TestLimitOfASecondLock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	second := "second:" + b.queue
	var s *queue.Server
	busy := make(chan error, 3)
	gate := make(chan struct{})
	s = b.serve(t, queue.ServerConfig{Limits: map[string]queue.Limit{"second:*": {Holders: 2}}}, func(ctx context.Context, _ job) error {
		err := s.Locker().Do(ctx, second, nil, func(context.Context) error {
			<-gate
			return nil
		})
		if err != nil {
			busy <- err
		}
		return nil
	})
	for i := range 3 {
		b.enqueue(t, job{Res: fmt.Sprint(b.resource, i), N: i})
	}
	if err := within(t, patience, "the third", busy); !errors.Is(err, lock.ErrBusy) {
		t.Errorf("want ErrBusy, have %v", err)
	}
	close(gate)
}
