package queue_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
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

func (c *crowd) atWork() int {
	inside, _, _, _ := c.state()
	return inside
}

func (c *crowd) awaitInside(tb testing.TB, n int) {
	tb.Helper()
	expect.Eventually(tb, fmt.Sprintf("%d tasks at work", n), func() bool { return c.atWork() == n })
}

// isPaused reports whether the pause of [bundle.setLimit] is why a task was parked.
func (b *bundle) isPaused(id string) bool {
	b.Helper()
	return strings.Contains(b.await(queue.EventParked, id, 1).Err.Error(), "alice paused it: stock count")
}

// setLimit overrides the limit of the bundle's resource.
func (b *bundle) setLimit(holders int) {
	b.Helper()
	err := queue.SetLimit(b.Context(), b.rdb, queue.LimitOverride{Pattern: b.resource, Holders: holders, By: "alice", Reason: "stock count"})
	expect.OK(b, err)
}

// So many tasks of a resource run at once as its limit says, in the order in which they came.
func TestLimit(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bundle) {
		c := newCrowd()
		b.serve(queue.ServerConfig{Observe: b.observe, Limits: map[string]queue.Limit{"res:*": {Holders: 3}}}, c.run)
		const tasks = 12
		ids := make([]string, tasks)
		for i := range tasks {
			ids[i] = b.enqueue(b.job(i), queue.Options{Retries: queue.NoRetries})
			if i < 3 {
				c.awaitInside(b, i+1) // several workers may ask for a free permit in any order
			}
		}
		for i := range tasks {
			c.awaitInside(b, min(3, tasks-i))
			expect.Eventually(b, "the others parked", func() bool { return len(b.waiters()) == max(0, tasks-3-i) })
			c.gate <- struct{}{}
		}
		b.awaitGone(ids...)
		_, most, started, fences := c.state()
		slices.Sort(fences) // handlers that start at the same time come here in any order
		expect.That(b, most == 3 && len(started) == tasks && len(slices.Compact(fences)) == tasks,
			"want 3 at once and a fence for each, have %d, order %v, fences %v", most, started, fences)
		for i, n := range started {
			expect.That(b, i <= n+3 && n <= i+3, "want the order of arrival, have %v", started)
		}
		handedOff := 0
		for _, e := range b.of(queue.EventAcquired, "") {
			if e.HandOff > 0 {
				handedOff++
			}
		}
		expect.That(b, handedOff >= tasks-4, "want %d tasks handed off, have %d", tasks-3, handedOff)
	})
}

// An operator raises, lowers and removes a limit, and pauses the resource, while tasks of others run.
func TestSetLimit(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bundle) {
		c := newCrowd()
		b.serve(queue.ServerConfig{Observe: b.observe}, c.run)
		for i := range 30 {
			b.enqueue(b.job(i))
		}
		c.awaitInside(b, 1)
		b.setLimit(4)
		next := time.Now()
		expect.Eventually(b, "4 tasks at work", func() bool {
			if c.atWork() == 1 && time.Now().After(next) { // it has the whole lock, from before the server knew of the limit
				c.gate <- struct{}{}
				next = time.Now().Add(300 * time.Millisecond)
			}
			return c.atWork() == 4
		})
		raised := time.Now()
		b.setLimit(6)
		c.awaitInside(b, 6)
		b.Logf("a raised limit took %v", time.Since(raised))

		b.setLimit(0)
		var waiting []string
		awaitPause := func() {
			expect.Eventually(b, "a task parked by the pause", func() bool {
				id := b.enqueue(b.job(50))
				waiting = append(waiting, id)
				return b.isPaused(id)
			})
		}
		awaitPause()
		other := b.enqueue(job{Res: "other:" + b.queue, N: 100})
		b.await(queue.EventAcquired, other, 1)
		for range 7 { // the six and the other
			c.gate <- struct{}{}
		}
		c.awaitInside(b, 0)
		awaitPause() // the last holder releases its lock first
		steadily(b, 1500*time.Millisecond, "no task while the resource is paused", func() bool { return c.atWork() == 0 })

		removed := time.Now()
		was, err := queue.UnsetLimit(b.Context(), b.rdb, "", b.resource)
		expect.Need(b, was && err == nil, "want the limit removed, have %v and %v", was, err)
		c.awaitInside(b, 1)
		b.Logf("the end of a pause took %v", time.Since(removed))
		steadily(b, 200*time.Millisecond, "one task at a time", func() bool { return c.atWork() == 1 })
		close(c.gate)
		b.awaitGone(waiting...)
	})
}

// Tasks start as often as the rates allow, at the time at which they allow it, and never more often.
func TestRates(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bundle) {
		c := newCrowd()
		close(c.gate)
		const tasks, starts, period = 40, 10, 400 * time.Millisecond
		b.serve(queue.ServerConfig{Observe: b.observe, Limits: map[string]queue.Limit{
			"res:*": {Holders: 5, Rates: []lock.Rate{{Starts: starts, Period: period}, {Starts: 1000, Period: time.Hour}}},
		}}, c.run)
		b.awaitGone(b.enqueueJobs(1, tasks, queue.Options{Retries: queue.NoRetries})...)
		_, most, _, at := c.state()
		slices.Sort(at)
		var late time.Duration
		for i := starts; i < len(at); i++ {
			took := time.Duration(at[i]-at[i-starts]) * time.Microsecond
			if took < period-time.Millisecond { // a fence is the time of its start, to a few us
				b.Fatalf("want at most %d starts in %v, have one more after %v", starts, period, took)
			}
			late = max(late, took-period)
		}
		expect.That(b, most <= 5, "want at most 5 at once, have %d", most)
		for _, e := range b.of(queue.EventAcquired, "") {
			expect.That(b, e.Via != queue.ViaRecovery, "want no task to come by recovery, have %+v", e)
		}
		b.Logf("%d starts took %v, at best %v; the latest came %v after its time", tasks, time.Duration(at[tasks-1]-at[0])*time.Microsecond, (tasks/starts-1)*period, late)
	})
}

// A task whose worker dies keeps its permit until its TTL. It is recovered then, and not while it may be
// at work, although there are free permits, or although no rule is left for its resource.
func TestKilledHolderOfAPermit(t *testing.T) {
	t.Parallel()
	three := map[string]queue.Limit{"res:*": {Holders: 3}}
	rules := map[string]map[string]queue.Limit{"with the limit": three, "after the limit": nil}
	eachOf(t, onOne, rules, func(b *bundle, limits map[string]queue.Limit) {
		b.permits = true
		var victim mortal
		victim.guardConfig.Limits, victim.guardConfig.Lock = three, shortTimes
		victim.serve(b)
		other, zombie := b.hold(1), b.hold(0)
		otherID := b.enqueue(b.job(1)) // its permit may be the first to expire
		within(b, patience, "another holder", other.entered)
		id := b.enqueue(b.job(0))
		within(b, patience, "the holder", zombie.entered)
		again := b.hold(0)
		b.serve(queue.ServerConfig{Observe: b.observe, Limits: limits, Lock: shortTimes}, b.run)
		steadily(b, 2*time.Second, "the task left alone while it holds its permit", func() bool {
			b.silence(id) // time and again, as the holder renews it
			return len(b.of(queue.EventRecovered, id)) == 0
		})
		victim.dead.Store(true)
		b.silence(otherID)
		b.await(queue.EventRecovered, id, 1)
		within(b, patience, "the second attempt", again.entered)
		again.open()
		b.awaitGone(id)
		zombie.open()
		other.open()
	})
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
		expect.Equal(t, "limits", fmt.Sprint(queue.ServerConfig{Limits: limits}.Validate()), "queue: limits: "+want)
	}
	for want, o := range map[string]queue.LimitOverride{
		"pattern: " + pattern + `"*:1"`:        {Pattern: "*:1"},
		"r: holders: want 0 to 1000, have -1":  {Pattern: "r", Holders: -1, By: "a", Reason: "b"},
		"r: by: want a text, have nothing":     {Pattern: "r"},
		"r: reason: want a text, have nothing": {Pattern: "r", By: "a"},
	} {
		expect.Equal(t, "override", fmt.Sprint(queue.SetLimit(t.Context(), b.rdb, o)), "queue: set limit: "+want)
	}
}

func TestLimitsAreListed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	prefix := "test-" + b.queue + ":"
	have, err := queue.Limits(t.Context(), b.rdb, prefix)
	expect.Need(t, err == nil && len(have) == 0, "want none, have %v and %v", have, err)
	for _, pattern := range []string{"b:*", "a:1"} {
		o := queue.LimitOverride{Pattern: pattern, Prefix: prefix, Holders: 7, Rates: []lock.Rate{{Starts: 2, Period: time.Second}}, By: "alice", Reason: "a test"}
		expect.OK(t, queue.SetLimit(t.Context(), b.rdb, o))
	}
	have, err = queue.Limits(t.Context(), b.rdb, prefix)
	expect.Need(t, err == nil && len(have) == 2 && have[0].Pattern == "a:1" && have[1].Holders == 7 && have[1].Rates[0].Starts == 2 && have[1].By == "alice" && time.Since(have[1].At) <= time.Minute, "want two, have %+v and %v", have, err)
	was, err := queue.UnsetLimit(t.Context(), b.rdb, prefix, "c")
	expect.That(t, !was && err == nil, "want no such limit, have %v and %v", was, err)
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
	b.serve(queue.ServerConfig{Logger: logs.logger, Lock: lock.Config{Prefix: prefix}}, c.run)
	b.awaitGone(b.enqueue(b.job(1)))
	expect.Eventually(t, "a line in the log", func() bool { return len(logs.lines("last known ones hold")) > 0 })
}

// A pause holds while the overrides cannot be read, be it all of them or the pause alone.
func TestPauseThatCannotBeRead(t *testing.T) {
	t.Parallel()
	eachOf(t, onOne, map[string][]any{"all": {"set", "no hash"}, "the pause": {"hset", "res:*", "x"}}, func(b *bundle, spoil []any) {
		c, logs := newCrowd(), newLogs(b)
		close(c.gate)
		prefix := "test-" + b.queue + ":"
		o := queue.LimitOverride{Pattern: "res:*", Prefix: prefix, By: "alice", Reason: "stock count"}
		expect.OK(b, queue.SetLimit(b.Context(), b.rdb, o))
		b.serve(queue.ServerConfig{Observe: b.observe, Logger: logs.logger, Lock: lock.Config{Prefix: prefix}}, c.run)
		b.await(queue.EventParked, b.enqueue(b.job(0)), 1)
		expect.OK(b, b.rdb.Do(b.Context(), slices.Insert(spoil, 1, any("siding:limits:"+prefix))...).Err())
		expect.Eventually(b, "a line in the log", func() bool { return len(logs.lines("last known ones hold")) > 0 })
		id := b.enqueue(b.job(1))
		expect.That(b, b.isPaused(id), "want the pause")
		_, most, _, _ := c.state()
		expect.That(b, most == 0, "want no task at work, have %d", most)
		b.rdb.Del(b.Context(), "siding:limits:"+prefix)
		b.awaitGone(id)
	})
}

// A handler that takes a second lock keeps to its limit, too.
func TestLimitOfASecondLock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	second := "second:" + b.queue
	busy := make(chan error, 3)
	gate := make(chan struct{})
	cfg := queue.ServerConfig{Limits: map[string]queue.Limit{"second:*": {Holders: 2}}}
	b.serveWithLocker(cfg, func(ctx context.Context, locker *lock.Locker, _ job) error {
		err := locker.Do(ctx, second, nil, func(context.Context) error {
			<-gate
			return nil
		})
		if err != nil {
			busy <- err
		}
		return nil
	})
	for i := range 3 {
		b.enqueue(job{Res: fmt.Sprint(b.resource, i), N: i})
	}
	expect.Is(t, "the third", within(t, patience, "the third", busy), lock.ErrBusy)
	close(gate)
}

// An operator pauses a resource whose lock is on an external store, by the prefix of its own locks.
func TestPauseWithAnExternalStore(t *testing.T) {
	t.Parallel()
	b := setupUnfenced(t)
	b.setLimit(0)
	b.serve(queue.ServerConfig{Store: newQueueless(locktest.NewMemory()), Observe: b.observe}, b.run)
	id := b.enqueue(b.job(0), queue.Options{Retries: queue.NoRetries})
	expect.That(t, b.isPaused(id), "want who paused it")
	expect.OK(t, expect.Err(queue.UnsetLimit(t.Context(), b.rdb, "", b.resource)))
	expect.Eventually(t, "the task done", func() bool { return len(b.order()) == 1 })
	b.awaitGone(id)
}

// Nor do tasks ask for that lock side by side while somebody else holds it: the second might get it before the first.
func TestOverrideAboveOneKeepsTheOrder(t *testing.T) {
	t.Parallel()
	b, memory := setupUnfenced(t), locktest.NewMemory()
	b.setLimit(3)
	release := b.holdBy(newLocker(t, newQueueless(memory), lock.Config{}))
	b.serve(queue.ServerConfig{Store: newQueueless(memory), Observe: b.observe}, b.run)
	first := b.enqueue(b.job(0))
	b.await(queue.EventParked, first, 1)
	second := b.enqueue(b.job(1))
	b.await(queue.EventParked, first, 3) // it asks once a second
	b.wantEvents(queue.EventParked, second, 1)
	release()
	b.awaitGone(first, second)
	b.wantOrder(0, 1)
}

// With a lock on an external store tasks start no more often than the rates say.
func TestRatesWithAnExternalStore(t *testing.T) {
	t.Parallel()
	b := setupUnfenced(t)
	const tasks, period = 6, 300 * time.Millisecond
	limits := map[string]queue.Limit{"res:*": {Rates: []lock.Rate{{Starts: 2, Period: period}}}}
	b.serve(queue.ServerConfig{Store: newQueueless(locktest.NewMemory()), Limits: limits}, b.run)
	begin := time.Now()
	b.awaitGone(b.enqueueJobs(1, tasks, queue.Options{Retries: queue.NoRetries})...)
	took := time.Since(begin)
	expect.That(t, took >= 2*period, "want the fifth task %v after the first or later, have all done in %v", 2*period, took)
}

// A task in a Cluster that asks for a busy lock has not started, so it uses up no start of a rate.
func TestBusyLockIsNoStart(t *testing.T) {
	t.Parallel()
	b := setupCluster(t)
	held := b.acquire(nil)
	b.serve(queue.ServerConfig{Observe: b.observe, Limits: map[string]queue.Limit{"res:*": {Rates: []lock.Rate{{Starts: 2, Period: time.Hour}}}}}, b.run)
	id := b.enqueue(b.job(1))
	b.await(queue.EventParked, id, 3)
	expect.OK(t, held.Release(t.Context()))
	b.awaitGone(id)
}

// An operator pauses the resources of a pattern. A second later no server starts a task of it any more.
func TestOverridesReachAllServers(t *testing.T) {
	t.Parallel()
	verify.Long(t)
	onBoth(t, func(b *bundle) {
		const rounds = 15
		pattern, queues := b.resource+":*", []string{b.queue + ".1", b.queue + ".2", b.queue + ".3"}
		var last atomic.Pointer[time.Time] // start
		for _, q := range queues {
			b.serve(queue.ServerConfig{Asynq: asynq.Config{Queues: map[string]int{q: 1}}, Observe: b.observe}, func(context.Context, job) error {
				now := time.Now()
				last.Store(&now)
				return nil
			})
		}
		last.Store(new(time.Time))
		var reached []time.Duration
		for range rounds {
			set := time.Now()
			expect.OK(b, queue.SetLimit(b.Context(), b.rdb, queue.LimitOverride{Pattern: pattern, By: "alice", Reason: "stock count"}))
			parked := make([]string, len(queues))
			var all sync.WaitGroup
			for i, q := range queues { // each has a resource of its own, and one task at a time
				all.Go(func() {
					for parked[i] == "" {
						id := b.enqueue(job{Res: b.resource + ":" + q}, queue.Options{Queue: q})
						expect.Eventually(b, "the task done or parked", func() bool {
							if len(b.of(queue.EventParked, id)) > 0 {
								parked[i] = id
							}
							return parked[i] != "" || len(b.of(queue.EventReleased, id)) > 0
						})
					}
				})
			}
			all.Wait()
			reached = append(reached, last.Load().Sub(set))
			expect.OK(b, expect.Err(queue.UnsetLimit(b.Context(), b.rdb, "", pattern)))
			for i, q := range queues {
				b.awaitGoneFrom(q, parked[i])
			}
		}
		slices.Sort(reached)
		middle, most := reached[rounds/2], reached[rounds-1]
		b.Logf("the last start came %v after the pause in the middle, %v at most", middle, most)
		if middle > time.Second { // a machine that does much else may be late now and then
			b.Errorf("want all servers to know within a second, have %v in the middle of %v", middle, reached)
		}
	})
}
