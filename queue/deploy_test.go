package queue_test

import (
	"strconv"
	"testing"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/embedded"
	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/queue"
)

// Other kinds of Redis serve as well. Tasks of several queues, and so of several Cluster slots,
// contend for a few resources. Where a script reaches all queues, a lock goes from one queue to another.
func TestDeployments(t *testing.T) {
	t.Parallel()
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		testDeployment(t, redistest.StartCluster(t, 3).Addrs...)
	})
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		server, err := embedded.Start(embedded.Config{Port: embedded.AnyPort})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Close)
		testDeployment(t, server.Addr())
	})
}

func testDeployment(t *testing.T, addrs ...string) {
	t.Helper()
	const queues, resources, tasks = 5, 4, 60
	b, st, j := setupOn(t, redis.UniversalOptions{Addrs: addrs}), newStage(t), &journal{}
	cfg := queue.ServerConfig{Asynq: asynq.Config{Queues: make(map[string]int)}, Observe: j.observe}
	names := make([]string, queues)
	for i := range names {
		names[i] = b.queue + "." + strconv.Itoa(i)
		cfg.Asynq.Queues[names[i]] = 1
	}
	holder := st.hold(0)
	b.enqueue(t, b.job(0), queue.Options{Queue: names[0]})
	for range 2 {
		b.serve(t, cfg, st.run)
	}
	within(t, patience, "the holder", holder.entered)
	enqueued := []queue.Receipt{}
	for n := 1; n <= tasks; n++ {
		task := b.job(n)
		if r := n % resources; r > 0 {
			task.Res += ":" + strconv.Itoa(r)
		}
		name := names[n%queues]
		enqueued = append(enqueued, queue.Receipt{ID: b.enqueue(t, task, queue.Options{Queue: name, Retries: queue.NoRetries}), Queue: name})
	}
	_, cluster := b.rdb.(*redis.ClusterClient)
	poll.Eventually(t, "all tasks on the held resource waiting", func() bool {
		waiting := 0
		for _, name := range names {
			at := *b
			at.queue = name
			waiting += len(at.waiters(t))
		}
		return waiting == tasks/resources
	})
	holder.open()
	for _, r := range enqueued {
		at := *b
		at.queue = r.Queue
		at.awaitGone(t, r.ID)
	}
	if have := len(st.order()); have != tasks+1 {
		t.Errorf("runs: want %d, have %d", tasks+1, have)
	}
	handed := 0
	for _, e := range j.of(queue.EventAcquired, "") {
		if e.HandOff > 0 {
			handed++
		}
	}
	if handed < tasks/resources && !cluster {
		t.Errorf("want those that wait to have the lock handed on, have %d", handed)
	}
	for _, name := range names {
		if info, err := b.inspector.GetQueueInfo(name); err != nil || info.Failed != 0 || info.Size != 0 {
			t.Errorf("queue %s: want none failed and none left, have %+v, %v", name, info, err)
		}
	}
	if n, err := b.rdb.Exists(t.Context(), b.lockKey()).Result(); err != nil || n != 0 {
		t.Errorf("lock: want it free, have %d, %v", n, err)
	}
}
