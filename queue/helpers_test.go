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
	g, _ := b.begin(t, st, 0, queue.Options{Queue: elsewhere})
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
	must(t, err)
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
	wantSoon(t, start, "want the lock released, have it free after %v")
}

// waitLockKey is the key of the lock for which the bundle's tasks wait if theirs is on an external store.
func (b *bundle) waitLockKey() string { return "wait:" + b.lockKey() }

// again has a task that waits come now, as an operator does.
func (b *bundle) again(t *testing.T, id string) {
	t.Helper()
	must(t, b.inspector.RunTask(b.queue, id))
}

// must ends the test if something that it needs has failed.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// errOf returns the error of a call of which nothing else is wanted.
func errOf[T any](_ T, err error) error { return err }

// start starts a server for the time of a test.
func start(t *testing.T, s *queue.Server) {
	t.Helper()
	must(t, s.Start(t.Context()))
	t.Cleanup(func() { shutdown(t, s) })
}

// isClosed reports whether ch is closed.
func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// wantSoon wants what has happened by now to have taken no longer than prompt.
func wantSoon(t *testing.T, start time.Time, want string) {
	t.Helper()
	if took := time.Since(start); took > prompt {
		t.Errorf("%s, have %v", want, took)
	}
}

// begin returns with job n in its handler, where it stays until the gate opens.
func (b *bundle) begin(t *testing.T, st *stage, n int, opts ...queue.Options) (g *gate, id string) {
	t.Helper()
	g = st.hold(n)
	id = b.enqueue(t, b.job(n), opts...)
	within(t, patience, "the handler", g.entered)
	return g, id
}

// enqueueJobs enqueues the jobs from one number to another, that one too, in their order.
func (b *bundle) enqueueJobs(t *testing.T, from, to int, opts ...queue.Options) (ids []string) {
	t.Helper()
	for n := from; n <= to; n++ {
		ids = append(ids, b.enqueue(t, b.job(n), opts...))
	}
	return ids
}

// info returns a task of the bundle's queue as asynq's inspector sees it.
func (b *bundle) info(t *testing.T, id string) *asynq.TaskInfo {
	t.Helper()
	info, err := b.inspector.GetTaskInfo(b.queue, id)
	must(t, err)
	return info
}

type connOf func() any

func (f connOf) MakeRedisClient() any { return f() }
