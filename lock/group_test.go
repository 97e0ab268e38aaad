package lock_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/lock"
)

// TestManyLocksNeedFewCalls: those that are wanted or released at the same time go together.
func TestManyLocksNeedFewCalls(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		var calls atomic.Int64
		s.rdb.AddHook(redistest.Hook(func(cmds []redis.Cmder, send func(...redis.Cmder) error) error {
			calls.Add(1)
			timer := time.NewTimer(20 * time.Millisecond) // so that all that are wanted meanwhile go together, also on a busy machine
			<-timer.C
			return send(cmds...)
		}))
		const locks, few = 100, 50
		var all sync.WaitGroup
		for i := range locks {
			all.Go(func() {
				err := s.Do(s.Context(), fmt.Sprint(s.res, i), nil, func(context.Context) error { return nil })
				expect.That(s, err == nil, "lock %d: %v", i, err)
			})
		}
		all.Wait()
		expect.That(s, calls.Load() <= few, "want at most %d calls for %d locks, have %d", few, locks, calls.Load())
	})
}

// TestRedisIsKilledUnderGroups: no call hangs, no fence comes twice, and all goes on once Redis is back, with its data or not.
func TestRedisIsKilledUnderGroups(t *testing.T) {
	t.Parallel()
	const n, kills = 16, 3
	server := redistest.Start(t)
	// After as many dials have failed as the pool has room for, go-redis tries in the background, and sleeps in between.
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1, PoolSize: 1_000_000})
	t.Cleanup(func() { _ = rdb.Close() })
	s := setUp(t, rdb, lock.Config{})
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	holds := make(chan int) // gets who holds a lock
	for i := range n {
		all.Go(func() {
			pause := time.NewTicker(time.Millisecond)
			defer pause.Stop()
			var last int64
			for ctx.Err() == nil {
				held, err := s.Acquire(ctx, fmt.Sprint(s.res, i), nil)
				if err != nil {
					<-pause.C
					continue
				}
				expect.That(t, held.Fence() > last, "want a fence above %d, have %d", last, held.Fence())
				last = held.Fence()
				select {
				case holds <- i:
				case <-ctx.Done():
				default:
				}
				_ = held.Release(context.WithoutCancel(ctx))
			}
		})
	}
	late := time.NewTimer(kills * patience)
	defer late.Stop()
	for range kills {
		for seen := make(map[int]bool); len(seen) < n; {
			select {
			case i := <-holds:
				seen[i] = true
			case <-late.C:
				t.Fatalf("want %d goroutines to have locks, have %d", n, len(seen))
			}
		}
		server.Kill()
		server.Restart(t)
	}
}
