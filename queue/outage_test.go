package queue_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// occupyWithWaiters has job 0 hold the resource, and three more wait for it in their order. None has a retry.
func (b *bundle) occupyWithWaiters(t *testing.T, st *stage) (holder *gate, ids []string) {
	t.Helper()
	once := queue.Options{Retries: queue.NoRetries}
	holder, id := b.begin(t, st, 0, once)
	ids = []string{id}
	for n := 1; n <= 3; n++ {
		ids = append(ids, b.enqueueWaiter(t, n, n, once))
	}
	return holder, ids
}

// Redis is killed and comes back with all that it had acknowledged: every task resumes, and none
// uses a retry.
func TestRedisRestartsWithItsData(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		ttl  time.Duration
		lost bool // the outage is longer than the lock lives
		runs int
	}{
		"lock survives": {ttl: 15 * time.Second, runs: 4},
		"lock runs out": {ttl: 2 * time.Second, lost: true, runs: 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
			b, st, j := setupOn(t, redis.UniversalOptions{Addrs: []string{server.Addr}}), newStage(t), &journal{}
			b.serve(t, queue.ServerConfig{Asynq: asynq.Config{Concurrency: 4}, Lock: lock.Config{TTL: tt.ttl}, Observe: j.observe}, st.run)
			holder, ids := b.occupyWithWaiters(t, st)
			server.Kill()
			if tt.lost {
				within(t, patience, "the holder to give up", holder.ended)
			}
			server.Restart(t)
			poll.Eventually(t, "the client to be connected again", func() bool { return b.rdb.Ping(t.Context()).Err() == nil })
			holder.open()
			b.awaitGone(t, ids...)
			if have := st.order(); len(have) != tt.runs {
				t.Errorf("want %d runs, have %v", tt.runs, have)
			}
			if tt.lost {
				j.await(t, queue.EventLost, ids[0], 1) // told once Redis has answered
			}
			if have := j.of(queue.EventLost, ids[0]); (len(have) == 1) != tt.lost {
				t.Errorf("lost: want %v, have %+v", tt.lost, have)
			}
			if info := b.stats(t); info.Failed != 0 || info.Processed != len(ids) || info.Size != 0 {
				t.Errorf("want %d processed, none failed, have %+v", len(ids), info)
			}
		})
	}
}

// Redis stands still for longer than locks last. All tasks lose theirs, and the log says so in a line or two, not for each.
func TestStallIsOneLine(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b, st, logs := setupOn(t, redis.UniversalOptions{Addrs: []string{server.Addr}}), newStage(t), newLogs(t)
	b.serve(t, queue.ServerConfig{Lock: lock.Config{TTL: 2 * time.Second}, Logger: logs.logger}, st.run)
	const tasks = 8
	var ids []string
	var held []*gate
	for n := range tasks {
		held = append(held, st.hold(n))
		ids = append(ids, b.enqueue(t, job{Res: fmt.Sprint(b.resource, ":", n), N: n}))
	}
	for _, h := range held {
		within(t, patience, "the holder", h.entered)
	}
	server.Pause()
	for _, h := range held {
		within(t, patience, "the holder to give up", h.ended)
		h.open()
	}
	server.Resume()
	b.awaitGone(t, ids...)
	for _, message := range []string{"locks could not be renewed in time", `msg="lock lost while the task ran"`} {
		if lines := logs.lines(message, slog.LevelWarn); len(lines) != 1 {
			t.Errorf("%s: want one line, have %q", message, lines)
		}
	}
}

// A failover: the master dies, a replica takes over with what it was sent. The
// tasks that it knows of resume, without the workers being restarted.
func TestFailover(t *testing.T) {
	t.Parallel()
	sentinel := redistest.StartSentinel(t)
	b, st := setupOn(t, redis.UniversalOptions{Addrs: sentinel.Addrs, MasterName: sentinel.MasterName}), newStage(t)
	b.serve(t, queue.ServerConfig{Asynq: asynq.Config{Concurrency: 4}, Lock: lock.Config{TTL: 4 * patience}}, st.run)
	holder, ids := b.occupyWithWaiters(t, st)
	master := sentinel.Master(t)
	conn := master.Client(t).Conn()
	defer conn.Close()
	must(t, conn.Set(t.Context(), "after", "all of it", 0).Err())
	if n, err := conn.Wait(t.Context(), 2, patience).Result(); n != 2 {
		t.Fatalf("want both replicas in step, have %d, %v", n, err)
	}
	master.Kill()
	poll.Eventually(t, "a new master", func() bool { return sentinel.Master(t) != master && b.rdb.Ping(t.Context()).Err() == nil })
	holder.open()
	b.awaitGone(t, ids...)
	st.wantOrder(0, 1, 2, 3)
}

// Redis may forget its scripts at any time; nobody notices.
func TestScriptsFlushedInMidRun(t *testing.T) {
	t.Parallel()
	const tasks = 60
	b, _ := setupAlone(t)
	st := newStage(t)
	ids := b.enqueueJobs(t, 1, tasks, queue.Options{Retries: queue.NoRetries})
	b.serve(t, queue.ServerConfig{}, st.run)
	poll.Eventually(t, "all to run", func() bool {
		must(t, b.rdb.ScriptFlush(t.Context()).Err())
		return len(st.order()) == tasks
	})
	b.awaitGone(t, ids...)
	if info := b.stats(t); info.Failed != 0 || info.Processed != tasks {
		t.Errorf("want %d processed, none failed, have %+v", tasks, info)
	}
}
