package engine

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/internal/verify"
)

// A task of a plain client of asynq, which notifies nobody, is found soon while all servers are idle.
func TestUpkeepFindsTasksOfPlainClientsSoon(t *testing.T) { //nolint:paralleltest // it measures how long that takes
	const tasks, servers = 200, 3
	redisServer := redistest.Start(t)
	rdb := redisServer.Client(t)
	cfg := Config{Redis: rdb, Queues: make(map[string]int), Logger: slog.New(slog.DiscardHandler)}
	var names, lists []string
	for i := range 16 {
		name := fmt.Sprint("queue", i)
		cfg.Queues[name] = 1
		names, lists = append(names, name), append(lists, taskredis.NotifyKey(name))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	woken := make(chan time.Time)
	cfg = cfg.withDefaults()
	for i := range servers {
		running.Go(func() { newUpkeeps(&cfg, fmt.Sprint("server", i), func(...string) {})[0].run(ctx) })
		running.Go(func() { // an idle server
			for ctx.Err() == nil {
				got, err := rdb.BLPop(ctx, time.Second, lists...).Result()
				if err != nil {
					continue
				}
				queue := names[slices.Index(lists, got[0])]
				if rdb.RPop(ctx, taskredis.PendingKey(queue)).Err() == nil {
					woken <- time.Now()
				}
			}
		})
	}
	client := asynq.NewClientFromRedisClient(rdb)
	var took []time.Duration
	for i := range tasks {
		begin := time.Now()
		if _, err := client.EnqueueContext(ctx, asynq.NewTask("kind", nil), asynq.Queue(names[i%len(names)])); err != nil {
			t.Fatal(err)
		}
		took = append(took, (<-woken).Sub(begin))
	}
	slices.Sort(took)
	took = took[:len(took)-1] // the first one waited for the election
	t.Logf("p50 %v, p99 %v, at most %v", took[tasks/2], took[tasks*99/100-1], took[len(took)-1])
	have, want, of := took[tasks/2], 500*time.Millisecond, "50" // beside other tests it is for the machine to say
	if verify.All() {
		have, want, of = took[tasks*99/100-1], 50*time.Millisecond, "99"
	}
	if have > want {
		t.Errorf("want p%s within %v, have %v", of, want, have)
	}
}

// asynq's Inspector sees a task that upkeep has ended as one that asynq's recoverer has.
func TestUpkeepEndsTasksForInspector(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	client := asynq.NewClientFromRedisClient(rdb)
	for id, retries := range map[string]int{"retried": 1, "archived": 0} {
		if _, err := client.EnqueueContext(t.Context(), asynq.NewTask("kind", []byte("{}")), asynq.Queue("q"), asynq.TaskID(id), asynq.MaxRetry(retries)); err != nil {
			t.Fatal(err)
		}
		// As asynq's dequeue does it, long ago.
		for _, cmd := range []redis.Cmder{
			rdb.LMove(t.Context(), taskredis.PendingKey("q"), taskredis.ActiveKey("q"), "RIGHT", "LEFT"),
			rdb.HSet(t.Context(), taskredis.TaskKey("q", id), "state", "active"),
			rdb.HDel(t.Context(), taskredis.TaskKey("q", id), "pending_since"),
			rdb.ZAdd(t.Context(), taskredis.LeaseKey("q"), redis.Z{Member: id, Score: 5}),
		} {
			if err := cmd.Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	cfg := Config{Redis: rdb, Queues: map[string]int{"q": 1}, Logger: slog.New(slog.DiscardHandler)}.withDefaults()
	u := newUpkeeps(&cfg, "one", func(...string) {})[0]
	for range 20 { // elected, looked, ended
		u.turn(t.Context())
		u.look.at = time.Time{}
	}
	inspector := asynq.NewInspectorFromRedisClient(rdb)
	for id, want := range map[string]asynq.TaskState{"retried": asynq.TaskStateRetry, "archived": asynq.TaskStateArchived} {
		info, err := inspector.GetTaskInfo("q", id)
		if err != nil || info.State != want || info.LastErr != asynq.ErrLeaseExpired.Error() || time.Since(info.LastFailedAt) > time.Minute {
			t.Errorf("%s: want it %v, have %+v, %v", id, want, info, err)
		}
	}
	info, err := inspector.GetQueueInfo("q")
	if err != nil || info.Active != 0 || info.Processed != 2 || info.Failed != 2 {
		t.Errorf("want two failures, have %+v, %v", info, err)
	}
}

// With upkeep, idle servers do by themselves what nobody tells them of.
func TestUpkeepWakesServers(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	started := make(chan string, 10)
	cfg := f.config(func(_ context.Context, task *Task) error {
		started <- task.ID
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	cfg = cfg.withDefaults()
	for range 2 {
		s := f.start(cfg)
		found := func(queues ...string) {
			select {
			case s.loop.found <- queues:
			case <-ctx.Done():
			}
		}
		for _, u := range newUpkeeps(&cfg, s.calls.Session, found) {
			running.Go(func() { u.run(ctx) })
		}
	}
	client := asynq.NewClientFromRedisClient(f.rdb)
	enqueue := func(id string, opts ...asynq.Option) {
		t.Helper()
		if _, err := client.EnqueueContext(ctx, asynq.NewTask("kind", nil), append(opts, asynq.Queue("q"), asynq.TaskID(id))...); err != nil {
			t.Fatal(err)
		}
	}
	runs := func(id string, within time.Duration) {
		t.Helper()
		begin := time.Now()
		if have := <-started; have != id || time.Since(begin) > within {
			t.Errorf("want %s within %v, have %s after %v", id, within, have, time.Since(begin))
		}
	}
	const late = 5 * time.Second // of a busy machine; without upkeep they would never run, or hours later
	enqueue("first")
	runs("first", 2*late) // the election
	enqueue("plain")
	runs("plain", late)
	enqueue("scheduled", asynq.ProcessIn(1500*time.Millisecond))
	runs("scheduled", late)

	// A guarded task whose server dies, and one that waits for it, are run when its lock ends.
	runs(f.add("q", "order:1"), late)
	f.eventually(func() error { return f.empty("q") })
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const ttl = 2 * time.Second
	ends := time.Now().Add(ttl) // a lease must not end after its lock
	m := taskredis.Message{Type: "kind", ID: "crashed", Queue: "q", Retry: 1, Timeout: 60}
	must(f.rdb.HSet(ctx, taskredis.TaskKey("q", "crashed"), "msg", m.Encode(), "state", "active", "siding_resource", "order:1",
		"siding_attempt", "siding:dead-1-1:test", "siding_lock", "lock:order:1", "siding_ticket", 1).Err())
	must(f.rdb.LPush(ctx, taskredis.ActiveKey("q"), "crashed").Err())
	must(f.rdb.Set(ctx, "lock:order:1", "siding:dead-1-1:test", ttl).Err())
	must(f.rdb.ZAdd(ctx, taskredis.LeaseKey("q"), redis.Z{Member: "crashed", Score: float64(ends.UnixMilli()) / 1000}).Err())
	waits := f.add("q", "order:1")
	runs("crashed", ttl+late)
	runs(waits, late)
	if crashes := f.rdb.HGet(ctx, taskredis.TaskKey("q", "crashed"), "siding_crashes").Val(); crashes != "" && crashes != "1" {
		t.Errorf("want one crash counted, have %s", crashes)
	}
}

// empty returns nil when no task of a queue is at work.
func (f *fleet) empty(queue string) error {
	n, err := f.rdb.LLen(f.t.Context(), taskredis.ActiveKey(queue)).Result()
	if n > 0 {
		err = fmt.Errorf("want no active task, have %d", n)
	}
	return err
}

// In a Cluster each queue has its own elected server.
func TestUpkeepInCluster(t *testing.T) {
	t.Parallel()
	rdb := redistest.StartCluster(t, 2).Client(t)
	cfg := Config{Redis: rdb, Queues: map[string]int{"a": 1, "b": 1, "c": 1}, Cluster: true, TTL: 15 * time.Second, Logger: slog.New(slog.DiscardHandler)}
	found := make(chan string, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	until := time.Now().Add(time.Hour).Unix()
	for queue := range cfg.Queues {
		lock := taskredis.LockPrefix(queue, "lock:") + "order:1"
		for id, fields := range map[string][]any{
			"late":    {"state", "scheduled"},
			"crashed": {"state", "active", "msg", (&Message{Type: "kind", ID: "crashed", Queue: queue, Retry: 1}).Encode()},
			"waits":   {"state", "retry", "siding_lock", lock, "siding_ticket", 1, "siding_until", until},
		} {
			if err := rdb.HSet(ctx, taskredis.TaskKey(queue, id), fields...).Err(); err != nil {
				t.Fatal(err)
			}
		}
		for key, z := range map[string]redis.Z{
			taskredis.ScheduledKey(queue): {Member: "late", Score: 5},
			taskredis.LeaseKey(queue):     {Member: "crashed", Score: 5},
			taskredis.RetryKey(queue):     {Member: "waits", Score: float64(until)},
		} {
			if err := rdb.ZAdd(ctx, key, z).Err(); err != nil {
				t.Fatal(err)
			}
		}
		if err := rdb.LPush(ctx, taskredis.ActiveKey(queue), "crashed").Err(); err != nil {
			t.Fatal(err)
		}
	}
	cfg = cfg.withDefaults()
	for _, session := range []string{"one", "two"} {
		for _, u := range newUpkeeps(&cfg, session, func(queues ...string) { found <- queues[0] }) {
			running.Go(func() { u.run(ctx) })
		}
	}
	for queue := range cfg.Queues {
		for key, want := range map[string]int64{
			taskredis.PendingKey(queue): 1, taskredis.NotifyKey(queue): 1, taskredis.ReadyKey(queue): 1, taskredis.RetryKey(queue): 2, taskredis.ActiveKey(queue): 0,
		} {
			expect.Eventually(t, fmt.Sprintf("%d elements in %s", want, key), func() bool {
				n, err := rdb.LLen(ctx, key).Result()
				if err != nil {
					n, err = rdb.ZCard(ctx, key).Result()
				}
				return err == nil && n == want
			})
		}
	}
	all := make(map[string]bool)
	for len(all) < len(cfg.Queues) {
		all[<-found] = true
	}
}
