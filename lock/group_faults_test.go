package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/lock"
)

// manyCalls makes calls at the same time.
func manyCalls(n int, call func(i int) error) (errs []error, all *sync.WaitGroup) {
	errs, all = make([]error, n), &sync.WaitGroup{}
	for i := range n {
		all.Go(func() {
			errs[i] = call(i)
		})
	}
	return errs, all
}

// connect opens connections, as none can be opened without answers.
func connect(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	rdb, ok := client.(*redis.Client)
	if !ok {
		t.Fatalf("want the client of a server, have %T", client)
	}
	for range 8 {
		conn := rdb.Conn()
		must(t, conn.Ping(t.Context()).Err())
		defer conn.Close()
	}
}

// TestGroupsWhoseAnswersAreLost: of the calls that were under way each ends as if it had been alone. The client's own retry
// makes a whole group twice.
func TestGroupsWhoseAnswersAreLost(t *testing.T) {
	t.Parallel()
	const n = 24
	for _, tc := range retries {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			f := newFaulty(t, tc.max, lock.Config{})
			leases, rdb := make([]*lock.Lease, n), f.direct.rdb
			name := func(i int) string { return fmt.Sprint(f.res, i) }
			key := func(i int) string { return "lock:" + name(i) }
			value := func(i int) string { return rdb.Get(t.Context(), key(i)).Val() }
			const free, busy, broken, ours = 0, 1, 2, 3
			var err error
			for i := range n {
				switch i % 4 {
				case busy:
					err = rdb.Set(t.Context(), key(i), "siding:theirs:them", time.Minute).Err()
				case broken:
					err = rdb.HSet(t.Context(), key(i), "a", "b").Err()
				case ours:
					leases[i], err = f.Acquire(t.Context(), name(i), nil)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			connect(t, f.rdb)
			f.proxy.SwallowReplies(true)
			errs, all := manyCalls(n, func(i int) (err error) {
				if i%4 == ours {
					return leases[i].Release(t.Context())
				}
				leases[i], err = f.Acquire(t.Context(), name(i), nil)
				return err
			})
			fences := make([]int64, n) // of the first try
			poll.Eventually(t, "Redis to have acted on all", func() bool {
				for i := range n {
					if i%4 == free && value(i) == "" || i%4 == ours && value(i) != "" {
						return false
					}
					fences[i], _ = rdb.Get(t.Context(), store.Beside(key(i), "fence")).Int64()
				}
				return true
			})
			f.proxy.SwallowReplies(false)
			all.Wait()
			for i, err := range errs {
				retried, ok := tc.max == 0, false
				switch i % 4 {
				case free:
					ok = (err == nil) == retried
					if retried && ok {
						ok = leases[i].Fence() == fences[i]
						f.release(leases[i])
					}
					poll.Eventually(t, "what nobody holds to be free", func() bool { return value(i) == "" })
				case busy:
					ok = errors.Is(err, lock.ErrBusy) == retried && value(i) == "siding:theirs:them"
				case broken:
					ok = err != nil && strings.Contains(err.Error(), "WRONGTYPE") == retried && rdb.HGet(t.Context(), key(i), "a").Val() == "b"
				case ours:
					ok = (err == nil) == retried && value(i) == ""
				}
				if !ok {
					t.Errorf("call %d, of kind %d: have %v, and the lock holds %q", i, i%4, err, value(i))
				}
			}
		})
	}
}

// TestGroupsWhoseAnswersAreLate: who may not wait goes, and its lock is given back. Who goes with it has its lock.
func TestGroupsWhoseAnswersAreLate(t *testing.T) {
	t.Parallel()
	const n = 12
	f := newFaulty(t, 0, lock.Config{})
	leases := make([]*lock.Lease, n)
	name := func(i int) string { return fmt.Sprint(f.res, i) }
	connect(t, f.rdb)
	f.proxy.Delay(300 * time.Millisecond)
	errs, all := manyCalls(n, func(i int) (err error) {
		ctx := t.Context()
		if i%2 == 1 {
			short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			ctx = short
		}
		leases[i], err = f.Acquire(ctx, name(i), nil)
		return err
	})
	all.Wait()
	f.proxy.Delay(0)
	for i, err := range errs {
		if i%2 == 0 {
			if err != nil {
				t.Errorf("call %d: want the lock, have %v", i, err)
				continue
			}
			if err := leases[i].Renew(t.Context()); err != nil {
				t.Errorf("call %d: want it to hold the lock, have %v", i, err)
			}
			f.release(leases[i])
		} else if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("call %d: want %v, have %v", i, context.DeadlineExceeded, err)
		}
		poll.Eventually(t, "the lock to be free", func() bool {
			return f.direct.rdb.Exists(t.Context(), "lock:"+name(i)).Val() == 0
		})
	}
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
				if held.Fence() <= last {
					t.Errorf("want a fence above %d, have %d", last, held.Fence())
				}
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
