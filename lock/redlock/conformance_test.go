package redlock_test

import (
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/lock/redlock"
)

// TestConformance runs the suite of lock/locktest on five servers.
func TestConformance(t *testing.T) {
	t.Parallel()
	verify.Long(t)
	locktest.Run(t, backend(startFleet(t, 5)))
}

// TestSmoke runs the smallest part of it.
func TestSmoke(t *testing.T) {
	t.Parallel()
	locktest.Smoke(t, backend(startFleet(t, 5)))
}

// backend is what the suite needs of servers.
func backend(f *fleet) locktest.Backend {
	return locktest.Backend{
		NoFence:     true,
		NoWaitQueue: true,
		Open:        func(t *testing.T) lock.Store { t.Helper(); return f.in(t).store(patient) },
		Put: func(t *testing.T, key, value string, ttl time.Duration) {
			t.Helper()
			for _, admin := range f.admins {
				err := admin.Set(t.Context(), key, value, ttl).Err()
				if value == "" {
					err = admin.Del(t.Context(), key).Err()
				}
				expect.OK(t, err)
			}
		},
		Value: func(t *testing.T, key string) string {
			t.Helper()
			return onMost(f.servers, func(i int) string { return f.in(t).value(i, key) })
		},
	}
}

// onMost returns the value that most of those nodes have that have one. An expired lock may
// be on some of them still when another has the majority.
func onMost[N any](nodes []N, value func(i int) string) (most string) {
	count := make(map[string]int)
	for i := range nodes {
		if v := value(i); v != "" {
			count[v]++
			if count[v] > count[most] {
				most = v
			}
		}
	}
	return most
}

// in returns the same servers for another test.
func (f *fleet) in(t *testing.T) *fleet {
	t.Helper()
	other := *f
	other.T = t
	return &other
}

// TestConformanceInMemory runs it on nodes in memory, on fake time, also while two of
// them hang.
func TestConformanceInMemory(t *testing.T) {
	t.Parallel()
	for name, down := range map[string][]int{"all well": nil, "two hang": {0, 3}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes := newMemories(5)
			locktest.Run(t, locktest.Backend{
				NoFence:     true,
				NoWaitQueue: true,
				FakeTime:    true,
				Open: func(t *testing.T) lock.Store {
					t.Helper()
					// Less than what some cases wait for in all.
					store, networks := nodes.open(t, redlock.Config{NodeTimeout: 10 * time.Millisecond})
					each(networks, locktest.BlackHole, down...)
					return store
				},
				Put: func(_ *testing.T, key, value string, ttl time.Duration) {
					for _, node := range nodes {
						node.Put(key, value, ttl)
					}
				},
				Value: func(_ *testing.T, key string) string {
					return onMost(nodes, func(i int) string { return nodes[i].Value(key) })
				},
			})
		})
	}
}
