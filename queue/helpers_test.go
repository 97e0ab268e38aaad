package queue_test

import (
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// holdElsewhere returns with job 0, in a server and queue of its own, holding the
// bundle's resource.
func (b *bundle) holdElsewhere(t *testing.T, st *stage, cfg lock.Config) *gate {
	t.Helper()
	elsewhere := b.queue + ".elsewhere"
	b.serve(t, queue.ServerConfig{Asynq: asynq.Config{Queues: map[string]int{elsewhere: 1}}, Lock: cfg}, st.run)
	g := st.hold(0)
	b.enqueue(t, b.job(0), queue.Options{Queue: elsewhere})
	within(t, patience, "the holder", g.entered)
	return g
}

// park enqueues jobs one after the other, each of which must be parked.
func (b *bundle) park(t *testing.T, jobs ...int) []string {
	t.Helper()
	ids := make([]string, len(jobs))
	for i, n := range jobs {
		ids[i] = b.enqueue(t, b.job(n))
		b.awaitState(t, ids[i], asynq.TaskStateRetry)
	}
	return ids
}

// setupAlone returns a bundle on a server of the test's own, whose figures are of it alone.
func setupAlone(t *testing.T, args ...string) (*bundle, *redistest.Server) {
	t.Helper()
	server := redistest.Start(t, args...)
	return setupOn(t, redis.UniversalOptions{Addrs: []string{server.Addr}}), server
}

func (b *bundle) enqueueTask(t *testing.T, task *asynq.Task, opts ...asynq.Option) string {
	t.Helper()
	client := asynq.NewClientFromRedisClient(b.rdb)
	info, err := client.EnqueueContext(t.Context(), task, append(opts, asynq.Queue(b.queue))...)
	if err != nil {
		t.Fatal(err)
	}
	return info.ID
}

// lockOf returns what is at the key of a resource's lock, "" for nothing.
func (b *bundle) lockOf(t *testing.T, resource string) string {
	t.Helper()
	return b.rdb.Get(t.Context(), "lock:"+resource).Val()
}

// soonFree wants a lock released, long before its TTL.
func (b *bundle) soonFree(t *testing.T, resource string) {
	t.Helper()
	start := time.Now()
	poll.Eventually(t, "a free lock", func() bool { return b.lockOf(t, resource) == "" })
	if took := time.Since(start); took > prompt {
		t.Errorf("want the lock released, have it free after %v", took)
	}
}

// waitLockKey is the key of the lock for which the bundle's tasks wait if theirs is on an external store.
func (b *bundle) waitLockKey() string { return "wait:" + b.lockKey() }

// again has a task that waits come now, as an operator does.
func (b *bundle) again(t *testing.T, id string) {
	t.Helper()
	if err := b.inspector.RunTask(b.queue, id); err != nil {
		t.Fatal(err)
	}
}

type connOf func() any

func (f connOf) MakeRedisClient() any { return f() }
