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

// TestManyLocksNeedFewCalls: those that are wanted, renewed or released at the same time go together.
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
		s = s.with(lock.Config{TTL: 20 * time.Second, RenewEvery: time.Second}) // the machine may stand still
		const locks, few = 100, 50
		leases := make([]*lock.Lease, locks)
		each := func(what string, do func(i int) error) {
			before := calls.Load()
			var all sync.WaitGroup
			for i := range locks {
				all.Go(func() {
					if err := do(i); err != nil {
						s.Errorf("%s %d: %v", what, i, err)
					}
				})
			}
			all.Wait()
			n := calls.Load() - before
			expect.That(s, n <= few, "%s: want at most %d calls for %d locks, have %d", what, few, locks, n)
		}
		each("acquire", func(i int) (err error) {
			leases[i], err = s.Acquire(s.Context(), fmt.Sprint(s.res, i), nil)
			return err
		})
		first, before := leases[0].Deadline(), calls.Load()
		expect.Eventually(s.T, "all to be renewed", func() bool {
			for _, l := range leases {
				if !l.Deadline().After(first.Add(time.Second / 2)) {
					return false
				}
			}
			return true
		})
		n := calls.Load() - before
		expect.That(s, n <= few, "want at most %d calls to renew %d locks, have %d", few, locks, n)
		each("release", func(i int) error { return leases[i].Release(s.Context()) })
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
