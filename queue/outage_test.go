package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// occupyWithWaiters has job 0 hold the resource, and three more wait for it in their order. None has a retry.
func (b *bundle) occupyWithWaiters() (holder *gate, ids []string) {
	b.Helper()
	once := queue.Options{Retries: queue.NoRetries}
	holder, id := b.begin(0, once)
	ids = []string{id}
	for n := 1; n <= 3; n++ {
		ids = append(ids, b.enqueueWaiter(n, n, once))
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
			b := setupAloneWith(t, "--appendonly", "yes", "--appendfsync", "always")
			b.serve(queue.ServerConfig{Asynq: asynq.Config{Concurrency: 4}, Lock: lock.Config{TTL: tt.ttl}, Observe: b.observe}, b.run)
			holder, ids := b.occupyWithWaiters()
			b.server.Kill()
			if tt.lost {
				within(t, patience, "the holder to give up", holder.ended)
			}
			b.server.Restart(t)
			expect.Eventually(t, "the client to be connected again", func() bool { return b.rdb.Ping(t.Context()).Err() == nil })
			holder.open()
			b.awaitGone(ids...)
			expect.That(t, len(b.order()) == tt.runs, "want %d runs, have %v", tt.runs, b.order())
			if tt.lost {
				b.await(queue.EventLost, ids[0], 1) // told once Redis has answered
			}
			expect.Equal(t, "lost", len(b.of(queue.EventLost, ids[0])) == 1, tt.lost)
			b.wantCounts(len(ids), 0)
		})
	}
}

// Redis stands still for longer than locks last. All tasks lose theirs, and the log says so in a line or two, not for each.
func TestStallIsOneLine(t *testing.T) {
	t.Parallel()
	b, logs := setupAlone(t), newLogs(t)
	b.serve(queue.ServerConfig{Lock: lock.Config{TTL: 2 * time.Second}, Logger: logs.logger}, b.run)
	const tasks = 8
	var ids []string
	var held []*gate
	for n := range tasks {
		held = append(held, b.hold(n))
		ids = append(ids, b.enqueue(job{Res: fmt.Sprint(b.resource, ":", n), N: n}))
	}
	for _, h := range held {
		within(t, patience, "the holder", h.entered)
	}
	b.server.Pause()
	for _, h := range held {
		within(t, patience, "the holder to give up", h.ended)
		h.open()
	}
	b.server.Resume()
	b.awaitGone(ids...)
	for _, message := range []string{"locks could not be renewed in time", `msg="lock lost while the task ran"`} {
		logs.once(t, message, slog.LevelWarn)
	}
}

// A failover: the master dies, a replica takes over with what it was sent. The
// tasks that it knows of resume, without the workers being restarted.
func TestFailover(t *testing.T) {
	t.Parallel()
	sentinel := redistest.StartSentinel(t)
	b := setupOn(t, redis.UniversalOptions{Addrs: sentinel.Addrs, MasterName: sentinel.MasterName})
	b.serve(queue.ServerConfig{Asynq: asynq.Config{Concurrency: 4}, Lock: lock.Config{TTL: 4 * patience}}, b.run)
	holder, ids := b.occupyWithWaiters()
	master := sentinel.Master(t)
	conn := master.Client(t).Conn()
	defer conn.Close()
	expect.OK(t, conn.Set(t.Context(), "after", "all of it", 0).Err())
	n, err := conn.Wait(t.Context(), 2, patience).Result()
	expect.Need(t, n == 2, "want both replicas in step, have %d, %v", n, err)
	master.Kill()
	expect.Eventually(t, "a new master", func() bool { return sentinel.Master(t) != master && b.rdb.Ping(t.Context()).Err() == nil })
	holder.open()
	b.awaitGone(ids...)
	b.wantOrder(0, 1, 2, 3)
}

// A refusal has Redis refuse writes until the function that it returns is called.
type refusal func(t *testing.T, b *bundle) (end func())

// byCommands is a refusal that commands begin and end.
func byCommands(spoil, mend []any) refusal {
	return func(t *testing.T, b *bundle) func() {
		t.Helper()
		b.do(spoil...)
		return func() { b.do(mend...) }
	}
}

// noDisk has Redis fail to write its snapshot.
func noDisk(t *testing.T, b *bundle) func() {
	t.Helper()
	expect.OK(t, os.RemoveAll(b.rdb.ConfigGet(t.Context(), "dir").Val()["dir"]))
	b.do("config", "set", "save", "3600 1")
	b.do("bgsave")
	return func() { b.do("config", "set", "save", "") }
}

// Redis refuses all writes for a time, also for longer than asynq's lease lasts. A handler goes on as long as its lock is
// renewed, or without a lock. What it returns counts once Redis takes it, and until then the log does not say what has become
// of its task.
func TestWritesAreRefused(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		refuse refusal
		keeps  bool // locks are renewed, and tasks end, all the same, as that takes no memory
	}{
		"full":           {byCommands([]any{"config", "set", "maxmemory", "1"}, []any{"config", "set", "maxmemory", "0"}), true},
		"too few copies": {byCommands([]any{"config", "set", "min-replicas-to-write", "1"}, []any{"config", "set", "min-replicas-to-write", "0"}), false},
		"a replica":      {byCommands([]any{"replicaof", "127.0.0.1", "1"}, []any{"replicaof", "no", "one"}), false},
		"no disk":        {noDisk, false},
	} {
		for length, times := range map[string]struct{ lasts, ttl time.Duration }{
			"short": {3 * time.Second, 2 * time.Second},
			"long":  {45 * time.Second, 0},
		} {
			t.Run(name+", "+length, func(t *testing.T) {
				t.Parallel()
				if length == "long" {
					verify.Long(t)
				}
				const guarded, unguarded, guardedFails, unguardedFails = 0, 1, 2, 3
				b := setupAlone(t)
				b.unfenced = true // those without a resource have none
				p := &plain{guardConfig: queue.ServerConfig{Lock: lock.Config{TTL: times.ttl}}}
				p.serve(b)
				var gates []*gate
				var ids []string
				for _, n := range []int{guardedFails, unguardedFails} {
					b.act(n, func() error { return queue.Permanent(errors.New("out of stock")) })
				}
				for n := range 4 {
					gates = append(gates, b.hold(n))
					task := job{Res: b.resource + "." + string(rune('a'+n)), N: n}
					if n == guarded || n == guardedFails {
						ids = append(ids, b.enqueue(task))
					} else {
						ids = append(ids, b.enqueuePlain(task))
					}
					within(t, patience, "the handler", gates[n].entered)
				}
				end := tt.refuse(t, b)
				expect.Eventually(t, "writes refused", func() bool { return b.rdb.Set(t.Context(), "a", "b", 0).Err() != nil })
				refused := time.Now()
				gates[guardedFails].open()
				gates[unguardedFails].open()
				lost := time.Duration(0)
				steadily(t, times.lasts, "handlers at work, and no line of what has not happened", func() bool {
					select {
					case <-gates[unguarded].ended:
						return false
					case <-gates[guarded].ended:
						if lost == 0 {
							lost = time.Since(refused)
						}
					default:
					}
					return tt.keeps || len(p.logs.lines("task archived")) == 0
				})
				expect.That(t, lost == 0 == tt.keeps, "want the lock renewed: %t, have its loss after %v", tt.keeps, lost)
				end()
				gates[guarded].open()
				gates[unguarded].open()
				b.awaitGone(ids[guarded], ids[unguarded])
				for _, n := range []int{guardedFails, unguardedFails} {
					b.awaitState(ids[n], asynq.TaskStateArchived)
					line := p.logs.once(t, "task_id="+ids[n], slog.LevelError)
					expect.That(t, strings.Contains(line, "task archived"), "want the line of its end, have %q", line)
				}
				if info := b.stats(); info.Failed != 2 || info.Processed != 4 || info.Retry+info.Active+info.Pending != 0 {
					t.Errorf("want 4 processed and 2 failed, have %+v", info)
				}
				for _, n := range []int{unguarded, unguardedFails} {
					runs := slices.DeleteFunc(b.order(), func(run int) bool { return run != n })
					expect.Equal(t, fmt.Sprintf("runs of task %d", n), len(runs), 1)
				}
			})
		}
	}
}

// Redis refuses the write by which a task without retries begins. The task keeps its place, before those who wait.
func TestBeginningIsRefused(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bundle) {
		var until atomic.Pointer[time.Time]
		var refused atomic.Int32
		p := &plain{onTasks: func(_ context.Context, cmd redis.Cmder, send func() error) error {
			args := cmd.Args()
			begins := len(args) == 6 && args[3] == b.taskKey("first")
			if at := until.Load(); begins && at != nil && time.Now().Before(*at) {
				refused.Add(1)
				return refusedError("NOREPLICAS Not enough good replicas to write.")
			}
			return send()
		}}
		p.serve(b)
		g := b.occupy()
		ids := []string{b.enqueueWaiter(1, 1, queue.Options{TaskID: "first", Retries: queue.NoRetries})}
		for n := 2; n < 6; n++ {
			ids = append(ids, b.enqueueWaiter(n, n, queue.Options{}))
		}
		at := time.Now().Add(1500 * time.Millisecond)
		until.Store(&at)
		g.open()
		b.awaitGone(ids...)
		b.wantOrder(0, 1, 2, 3, 4, 5)
		expect.That(b, refused.Load() != 0, "want some refusals, have none")
	})
}

// A refusedError is an error of Redis.
type refusedError string

func (e refusedError) Error() string { return string(e) }

// RedisError says that Redis has answered it.
func (refusedError) RedisError() {}
