package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/internal/verify"
)

// An island is a Redis in memory with servers, in fake time.
type island struct {
	*memory

	t    *testing.T
	ends []func()

	mu     sync.Mutex
	offset time.Duration  // of Redis' clock
	began  map[string]int // how often the handler of a task has begun, by id
}

func onIsland(t *testing.T, test func(i *island)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		i := &island{memory: newMemory(t), t: t, began: make(map[string]int)}
		i.mini.ClockTTL(true)
		i.AddHook(redistest.Hook(i.tick))
		test(i)
		for _, end := range i.ends {
			end()
		}
	})
}

// tick has Redis' clock go on with each call.
func (i *island) tick(cmds []redis.Cmder, send func(...redis.Cmder) error) error {
	i.mu.Lock()
	i.mini.SetTime(time.Now().Add(i.offset))
	i.mu.Unlock()
	return send(cmds...)
}

// step moves Redis' clock. What expires does so by that clock, as in Redis.
func (i *island) step(by time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.mini.SetTime(time.Now().Add(i.offset))
	i.mini.Exists("any") // what has expired until now goes
	i.offset += by
	i.mini.SetTime(time.Now().Add(i.offset))
	if by < 0 {
		i.mini.FastForward(by)
	}
}

// serve starts a server whose handler works for so long. kill ends it as SIGKILL ends a process.
func (i *island) serve(work func(*Task) time.Duration, changes ...func(*Config)) (kill func()) {
	i.t.Helper()
	killed := make(chan struct{})
	cfg := *loopConfig(i.t, func(ctx context.Context, task *Task) error {
		i.mu.Lock()
		i.began[task.ID]++
		i.mu.Unlock()
		select {
		case <-time.After(work(task)):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-killed:
			return errKilled
		}
	})
	var dead atomic.Bool
	rdb := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:1", ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1,
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			if dead.Load() {
				return nil, errors.New("killed")
			}
			return i.dial()
		},
	})
	rdb.AddHook(redistest.Hook(i.tick))
	cfg.Redis, cfg.ShutdownTimeout = rdb, time.Second
	for _, change := range changes {
		change(&cfg)
	}
	s := New(cfg)
	expect.OK(i.t, s.Start(i.t.Context(), taskredis.Rules{}))
	kill = func() {
		if dead.Swap(true) {
			return
		}
		s.stop()
		_ = rdb.Close()
		close(killed)
		s.wg.Wait()
	}
	i.ends = append(i.ends, kill)
	return kill
}

func (i *island) add(id, resource string) {
	i.t.Helper()
	m := taskredis.Message{Type: "kind", ID: id, Queue: "q", Retry: 25, Timeout: 7200, Payload: []byte(resource)}
	ctx := i.t.Context()
	i.HSet(ctx, taskredis.TaskKey("q", id), "msg", m.Encode(), "state", "pending")
	if resource != "" {
		i.HSet(ctx, taskredis.TaskKey("q", id), "siding_resource", resource)
	}
	i.LPush(ctx, taskredis.PendingKey("q"), id)
	i.SAdd(ctx, "asynq:queues", "q")
	i.LPush(ctx, taskredis.NotifyKey("q"), 1)
}

// runs returns how often the handler of a task has begun.
func (i *island) runs(id string) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.began[id]
}

// A task without a lock runs on for as long as it likes, however long locks last.
func TestLeaseOfATaskWithoutALock(t *testing.T) {
	t.Parallel()
	for _, lasts := range []time.Duration{3 * time.Second, 10 * time.Minute} {
		t.Run(fmt.Sprint(lasts), func(t *testing.T) {
			t.Parallel()
			onIsland(t, func(i *island) {
				for range 2 {
					i.serve(always(5*time.Minute), ttl(lasts))
				}
				i.add("plain", "")
				time.Sleep(2 * time.Minute)
				have := i.runs("plain")
				expect.That(t, have == 1, "want it to begin once, have %d times", have)
			})
		})
	}
}

// Redis' clock steps back, and a server dies before or after that. Its task runs again as soon as without the step, also if the server
// that looks after the queues has died with it. Nobody takes the lock of a server that lives, also if it lasts longer than
// those of others.
func TestClockStepsBack(t *testing.T) {
	t.Parallel()
	const never, shorter, usual, longer = time.Hour, 3 * time.Second, 15 * time.Second, 2 * time.Minute
	for _, back := range []time.Duration{10 * time.Second, time.Minute, 30 * time.Hour} {
		for _, dies := range []time.Duration{-time.Second, 100 * time.Millisecond, 7 * time.Second, never} {
			for _, lasts := range []time.Duration{usual, longer} {
				t.Run(fmt.Sprintf("by %v, dies after %v, locks of %v", back, dies, lasts), func(t *testing.T) {
					t.Parallel()
					if back != time.Minute || lasts != usual {
						verify.Long(t)
					}
					onIsland(t, func(i *island) {
						const before = 4 * time.Second
						work := always(time.Hour)
						elected := i.serve(work, ttl(shorter), slots(1))
						i.add("another", "b")
						time.Sleep(time.Second)
						dying := i.serve(work, ttl(lasts), slots(1))
						i.add("first", "a")
						i.add("second", "a")
						time.Sleep(time.Second)
						i.serve(work, ttl(usual), slots(2))
						time.AfterFunc(before, func() { i.step(-back) })
						time.Sleep(before + min(dies, 10*time.Second))
						want, late := 1, 3*time.Second
						if dies != never {
							dying()
							want = 2
						}
						if dies < 0 { // another one has to be elected, and then notices the step
							elected()
							late += taskredis.ElectedFor + askEvery
						}
						time.Sleep(lasts + late)
						if have := i.runs("first"); have != want {
							t.Errorf("want it to have begun %d times after the TTL, have %d", want, have)
						}
						if have := i.runs("second"); have > 0 {
							t.Error("want the second to wait")
						}
					})
				})
			}
		}
	}
}
