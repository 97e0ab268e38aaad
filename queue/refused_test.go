package queue_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// A refusal has Redis refuse writes until the function that it returns is called.
type refusal func(t *testing.T, b *bundle) (end func())

// byCommands is a refusal that commands begin and end.
func byCommands(spoil, mend []any) refusal {
	return func(t *testing.T, b *bundle) func() {
		t.Helper()
		b.do(t, spoil...)
		return func() { b.do(t, mend...) }
	}
}

// noDisk has Redis fail to write its snapshot.
func noDisk(t *testing.T, b *bundle) func() {
	t.Helper()
	must(t, os.RemoveAll(b.rdb.ConfigGet(t.Context(), "dir").Val()["dir"]))
	b.do(t, "config", "set", "save", "3600 1")
	b.do(t, "bgsave")
	return func() { b.do(t, "config", "set", "save", "") }
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
				b, _ := setupAlone(t)
				st := newStage(t)
				st.unfenced = true // those without a resource have none
				p := &plain{guardConfig: queue.ServerConfig{Lock: lock.Config{TTL: times.ttl}}}
				p.serve(t, b, st)
				var gates []*gate
				var ids []string
				for _, n := range []int{guardedFails, unguardedFails} {
					st.act(n, func() error { return queue.Permanent(errors.New("out of stock")) })
				}
				for n := range 4 {
					gates = append(gates, st.hold(n))
					task := job{Res: b.resource + "." + string(rune('a'+n)), N: n}
					if n == guarded || n == guardedFails {
						ids = append(ids, b.enqueue(t, task))
					} else {
						ids = append(ids, b.enqueuePlain(t, task))
					}
					within(t, patience, "the handler", gates[n].entered)
				}
				end := tt.refuse(t, b)
				poll.Eventually(t, "writes refused", func() bool { return b.rdb.Set(t.Context(), "a", "b", 0).Err() != nil })
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
				if kept := lost == 0; kept != tt.keeps {
					t.Errorf("want the lock renewed: %t, have its loss after %v", tt.keeps, lost)
				}
				end()
				gates[guarded].open()
				gates[unguarded].open()
				b.awaitGone(t, ids[guarded], ids[unguarded])
				for _, n := range []int{guardedFails, unguardedFails} {
					b.awaitState(t, ids[n], asynq.TaskStateArchived)
					poll.Eventually(t, "a line in the log", func() bool { return len(p.logs.lines("task_id="+ids[n], slog.LevelError)) > 0 })
					if have := p.logs.lines("task_id="+ids[n], slog.LevelError); len(have) != 1 || !strings.Contains(have[0], "task archived") {
						t.Errorf("want one line of its end, have %q", have)
					}
				}
				if info := b.stats(t); info.Failed != 2 || info.Processed != 4 || info.Retry+info.Active+info.Pending != 0 {
					t.Errorf("want 4 processed and 2 failed, have %+v", info)
				}
				for _, n := range []int{unguarded, unguardedFails} {
					if runs := slices.DeleteFunc(st.order(), func(run int) bool { return run != n }); len(runs) != 1 {
						t.Errorf("task %d: want one run, have %d", n, len(runs))
					}
				}
			})
		}
	}
}

// Redis refuses the write by which a task without retries begins. The task keeps its place, before those who wait.
func TestBeginningIsRefused(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st := newStage(t)
		var until atomic.Pointer[time.Time]
		var refused atomic.Int32
		p := &plain{onTasks: func(_ context.Context, cmd redis.Cmder, send func() error) error {
			args := cmd.Args()
			begins := len(args) == 5 && args[3] == b.taskKey("first")
			if at := until.Load(); begins && at != nil && time.Now().Before(*at) {
				refused.Add(1)
				return refusedError("NOREPLICAS Not enough good replicas to write.")
			}
			return send()
		}}
		p.serve(t, b, st)
		g := b.occupy(t, st)
		ids := []string{b.enqueueWaiter(t, 1, 1, queue.Options{TaskID: "first", Retries: queue.NoRetries})}
		for n := 2; n < 6; n++ {
			ids = append(ids, b.enqueueWaiter(t, n, n, queue.Options{}))
		}
		at := time.Now().Add(1500 * time.Millisecond)
		until.Store(&at)
		g.open()
		b.awaitGone(t, ids...)
		st.wantOrder(0, 1, 2, 3, 4, 5)
		if refused.Load() == 0 {
			t.Error("want some refusals, have none")
		}
	})
}

// A refusedError is an error of Redis.
type refusedError string

func (e refusedError) Error() string { return string(e) }

// RedisError says that Redis has answered it.
func (refusedError) RedisError() {}
