package queue_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/queue"
)

// An operator pauses a resource whose lock is on an external store, by the prefix of its own locks.
func TestPauseWithAnExternalStore(t *testing.T) {
	t.Parallel()
	b, st, j := setup(t), unfencedStage(t), &journal{}
	b.setLimit(t, 0)
	b.serve(t, queue.ServerConfig{Store: newQueueless(locktest.NewMemory()), Observe: j.observe}, st.run)
	id := b.enqueue(t, b.job(0), queue.Options{Retries: queue.NoRetries})
	if e := j.await(t, queue.EventParked, id, 1); !strings.Contains(e.Err.Error(), "alice paused it: stock count") {
		t.Errorf("want who paused it, have %v", e.Err)
	}
	if _, err := queue.UnsetLimit(t.Context(), b.rdb, "", b.resource); err != nil {
		t.Fatal(err)
	}
	poll.Eventually(t, "the task done", func() bool { return len(st.order()) == 1 })
	b.awaitGone(t, id)
}

// An override above 1 counts as 1 where the lock is on an external store: that has one holder. A second
// task waits in line, and is handed the lock, as without the override.
func TestOverrideAboveOneWithAnExternalStore(t *testing.T) {
	t.Parallel()
	b, c, j := setup(t), newCrowd(), &journal{}
	b.setLimit(t, 3)
	b.serve(t, queue.ServerConfig{Store: newQueueless(locktest.NewMemory()), Observe: j.observe}, c.run)
	first := b.enqueue(t, b.job(0))
	c.awaitInside(t, 1)
	second := b.enqueue(t, b.job(1))
	j.await(t, queue.EventParked, second, 1)
	c.gate <- struct{}{}
	if e := j.await(t, queue.EventAcquired, second, 1); e.Via != queue.ViaHandOff {
		t.Errorf("want the lock handed off, have it via %v", e.Via)
	}
	c.gate <- struct{}{}
	b.awaitGone(t, first, second)
	if _, most, started, _ := c.state(); most != 1 || len(started) != 2 {
		t.Errorf("want one task at a time, have %d of %v", most, started)
	}
}

// With a lock on an external store tasks start no more often than the rates say.
func TestRatesWithAnExternalStore(t *testing.T) {
	t.Parallel()
	b, st := setup(t), unfencedStage(t)
	const tasks, period = 6, 300 * time.Millisecond
	limits := map[string]queue.Limit{"res:*": {Rates: []lock.Rate{{Starts: 2, Period: period}}}}
	b.serve(t, queue.ServerConfig{Store: newQueueless(locktest.NewMemory()), Limits: limits}, st.run)
	begin := time.Now()
	b.awaitGone(t, b.enqueueJobs(t, 1, tasks, queue.Options{Retries: queue.NoRetries})...)
	if took := time.Since(begin); took < 2*period {
		t.Errorf("want the fifth task %v after the first or later, have all done in %v", 2*period, took)
	}
}

// A lock on an external store has one holder. A server that is to allow more does not start.
func TestLimitIsRefusedWithAnExternalStore(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := queue.NewServer(b.redisOpt(), queue.ServerConfig{Store: newQueueless(locktest.NewMemory()), Limits: map[string]queue.Limit{"account:*": {Holders: 5}, "order:*": {Holders: 1}}})
	if want := "queue: limits: account:*: want one holder with a store of another kind, have 5"; err == nil || err.Error() != want {
		t.Errorf("want %q, have %v", want, err)
	}
}
