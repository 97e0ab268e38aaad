package inspect_test

import (
	"math"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/queue"
)

// On a Cluster of three masters, with shards, the answers are those of one Redis.
func TestCluster(t *testing.T) {
	t.Parallel()
	opts := redis.UniversalOptions{Addrs: redistest.StartCluster(t, 3).Addrs, IsClusterMode: true}
	start := func(t *testing.T) *bed {
		t.Helper()
		b := setupOn(t, opts, inspect.Config{}, queue.ClientConfig{})
		shards := map[string]int{b.queue: 5}
		var err error
		b.client, err = queue.NewClient(b.rdb, queue.ClientConfig{Shards: shards})
		expect.OK(t, err)
		b.serve(queue.ServerConfig{Shards: shards})
		return b
	}
	t.Run("running and waiting", func(t *testing.T) {
		t.Parallel()
		b := start(t)
		holder := b.running(0)
		ids := b.waiting(1, 3)
		e := b.awaitWhy(holder, inspect.StateRunning)
		expect.That(t, e.Task.Queue != b.queue && e.Lock.State == inspect.Held && e.Lock.Waiting == 3 && !e.Verdict.Trouble, "want a task of a shard with its lock, have %+v", e)
		b.queue = e.Task.Queue
		expect.Eventually(t, "a settled waiter", func() bool { e = b.why(ids[2]); return e.State == inspect.StateWaiting })
		expect.That(t, e.Position == 3 && e.Lock.Task != nil && e.Lock.Task.ID == holder && !e.Lock.Gone && !e.Verdict.Trouble && e.Servers == 1, "want the third behind a running one, have %+v", e)
		l, waiters := b.show(2, 10)
		expect.That(t, l.State == inspect.Held && len(waiters) == 2 && waiters[0].Task.ID == ids[1] && waiters[0].Task.Queue == b.queue, "show: have %+v, %+v", l, waiters)
		if l, waiters = b.show(math.MaxInt, 10); l.Waiting != 3 || len(waiters) != 0 {
			t.Errorf("show behind all: have %+v, %+v", l, waiters)
		}
		if l := b.held(b.resource); l == nil || l.Waiting != 3 || l.Task.ID != holder || l.Gone {
			t.Errorf("held: have %+v", l)
		}
		locks := b.scan()
		expect.That(t, find(locks, b.resource) != nil, "scan: have %+v", locks)
		queues := get(b, b.inspector.Queues)
		for _, q := range queues {
			expect.That(t, q.Name != b.queue || q.Active == 1 && q.Waiting == 3 && q.Servers == 1, "queues: have %+v", q)
		}
		b.silence(holder)
		expect.Eventually(t, "a holder that is gone", func() bool {
			e := b.why(ids[0])
			return e.Verdict.Trouble && e.Lock.Gone
		})
		orphans := get(b, b.inspector.Orphans)
		expect.That(t, len(orphans) == 1 && orphans[0].Task.ID == holder, "orphans: have %+v", orphans)
		b.wantNoToken([]any{locks, e, l})
	})
	t.Run("behind a foreign holder", func(t *testing.T) {
		t.Parallel()
		b := start(t)
		b.do("set", b.lockKey(), "8f3a60", "px", 60000)
		id := b.job(1) // it asks for the lock each second
		e := b.awaitWhy(id, inspect.StateWaiting)
		expect.Eventually(t, "a settled waiter", func() bool { e = b.why(id); return e.Position == 1 })
		expect.That(t, e.Lock.State == inspect.Foreign && !e.Verdict.Trouble && time.Duration(e.Lock.Left) >= 30*time.Second, "want a foreign holder, have %+v", e)
	})
	t.Run("back-off and paused", func(t *testing.T) {
		t.Parallel()
		b := start(t)
		e := b.awaitWhy(b.job(-1), inspect.StateRetrying)
		expect.That(t, e.Failure == "boom", "want its failure, have %+v", e)
		expect.OK(t, b.operator.PauseQueue(e.Task.Queue))
		if e = b.awaitWhy(b.job(1), inspect.StatePending); !e.Paused || !e.Verdict.Trouble {
			t.Errorf("want a paused queue, have %+v", e)
		}
	})
}
