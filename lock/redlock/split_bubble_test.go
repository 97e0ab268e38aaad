package redlock_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/lock/redlock"
)

// contenders are three processes that reach two, two and one of five nodes before the others.
func contenders(t *testing.T, nodes memories) (stores []lock.Store) {
	t.Helper()
	for _, near := range [][]int{{0, 1}, {2, 3}, {4}} {
		store, networks := nodes.open(t, redlock.Config{})
		each(networks, locktest.Only(locktest.Acquire, far(func() time.Duration { return 10 * time.Millisecond })), 0, 1, 2, 3, 4)
		each(networks, locktest.Fine, near...)
		stores = append(stores, store)
	}
	return stores
}

// TestSplitVote: nobody gets the lock, all are told so, and nothing stays on a node.
func TestSplitVote(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := newMemories(5)
		var all sync.WaitGroup
		for i, locks := range contenders(t, nodes) {
			all.Go(func() {
				answer, err := locks.Acquire(t.Context(), store.Request{Key: key, Token: "siding:" + string(rune('a'+i)), TTL: time.Second, FenceTTL: time.Minute})
				if err != nil || !answer.Split || answer.Taken || answer.Holder != "" {
					t.Errorf("want a split vote, have %+v, %v", answer, err)
				}
			})
		}
		all.Wait()
		nodes.wantOn(t, "after a split vote", ".....")
	})
}

// TestSplitVoteIsDecided by those who try but once: one of them gets it in the end.
func TestSplitVoteIsDecided(t *testing.T) {
	t.Parallel()
	const rounds = 30
	taken := 0
	for range rounds {
		synctest.Test(t, func(t *testing.T) {
			nodes := newMemories(5)
			var mu sync.Mutex
			var leases []*lock.Lease
			var all sync.WaitGroup
			for _, store := range contenders(t, nodes) {
				locker := lockerOn(t, store, lock.Config{})
				all.Go(func() {
					if lease, err := locker.Acquire(t.Context(), "order:1", nil); err == nil {
						mu.Lock()
						defer mu.Unlock()
						leases = append(leases, lease)
					}
				})
			}
			all.Wait()
			if len(leases) > 1 {
				t.Fatalf("want one holder, have %d", len(leases))
			}
			taken += len(leases)
			for _, lease := range leases {
				_ = lease.Release(t.Context())
			}
		})
	}
	// Pauses that overlap five times in a row are possible.
	if taken < rounds-2 {
		t.Errorf("want a holder in each of %d rounds, have %d", rounds, taken)
	}
}

// TestContenders on networks of their own each get the lock, time and again, and no two
// have it at once.
func TestContenders(t *testing.T) {
	t.Parallel()
	const processes, rounds = 10, 5
	for _, down := range [][]int{nil, {1}, {0, 3}} {
		synctest.Test(t, func(t *testing.T) {
			nodes := newMemories(5)
			holders, waited := make(chan struct{}, 1), make(chan time.Duration, processes*rounds)
			var all sync.WaitGroup
			for range processes {
				locker, networks := nodes.process(t, redlock.Config{})
				each(networks, far(func() time.Duration { return rand.N(3 * time.Millisecond) }), 0, 1, 2, 3, 4)
				each(networks, locktest.BlackHole, down...)
				all.Go(func() {
					for range rounds {
						start := time.Now()
						err := locker.Do(t.Context(), "order:1", &lock.Options{Wait: lock.Forever}, func(context.Context) error {
							select {
							case holders <- struct{}{}:
							default:
								t.Error("want one holder at a time, have two")
								return nil
							}
							time.Sleep(5 * time.Millisecond)
							<-holders
							return nil
						})
						if err != nil {
							t.Error(err)
						}
						waited <- time.Since(start)
					}
				})
			}
			all.Wait()
			close(waited)
			for wait := range waited {
				if wait > time.Minute {
					t.Errorf("nodes %v are down: want nobody to starve, have a wait of %v", down, wait)
				}
			}
			nodes.wantOn(t, "after all", ".....")
		})
	}
}
