package lock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/embedded"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
)

// servers are all that speaks Redis, each with what makes a client of it.
var servers = map[string]func(*testing.T) (open func(*testing.T) redis.UniversalClient){
	"redis": func(t *testing.T) func(*testing.T) redis.UniversalClient {
		t.Helper()
		server := redistest.Shared(t)
		return func(t *testing.T) redis.UniversalClient { t.Helper(); return server.Client(t) }
	},
	"miniredis": func(t *testing.T) func(*testing.T) redis.UniversalClient {
		t.Helper()
		server := expect.Value(embedded.Start(embedded.AnyPort))(t)
		t.Cleanup(server.Close)
		return func(t *testing.T) redis.UniversalClient {
			t.Helper()
			client := redis.NewClient(&redis.Options{Addr: server.Addr(), ReadTimeout: redistest.Patience, ContextTimeoutEnabled: true})
			t.Cleanup(func() { _ = client.Close() })
			return client
		}
	},
	"cluster": func(t *testing.T) func(*testing.T) redis.UniversalClient {
		t.Helper()
		cluster := redistest.StartCluster(t, 3)
		for master := range 3 {
			cluster.AddReplica(t, master)
		}
		return func(t *testing.T) redis.UniversalClient { t.Helper(); return cluster.Client(t) }
	},
	"sentinel": func(t *testing.T) func(*testing.T) redis.UniversalClient {
		t.Helper()
		sentinel := redistest.StartSentinel(t)
		return func(t *testing.T) redis.UniversalClient { t.Helper(); return sentinel.Client(t) }
	},
}

// TestConformance runs the suite of lock/locktest on each of them.
func TestConformance(t *testing.T) {
	t.Parallel()
	for name, start := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name != "redis" {
				verify.Long(t)
			}
			locktest.Run(t, backend(t, start(t)))
		})
	}
}

// TestSmoke runs the smallest part of the suite on all but the Redis that has run the whole.
func TestSmoke(t *testing.T) {
	t.Parallel()
	for name, start := range servers {
		if name == "redis" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locktest.Smoke(t, backend(t, start(t)))
		})
	}
}

// backend is what the suite needs of a server.
func backend(t *testing.T, open func(*testing.T) redis.UniversalClient) locktest.Backend {
	t.Helper()
	admin := open(t)
	return locktest.Backend{
		Open: func(t *testing.T) lock.Store { t.Helper(); return lock.Redis(open(t)) },
		Put: func(t *testing.T, key, value string, ttl time.Duration) {
			t.Helper()
			put(t, admin, key, value, ttl)
		},
		Value: func(t *testing.T, key string) string {
			t.Helper()
			value, err := admin.Get(t.Context(), key).Result()
			if err != nil && !errors.Is(err, redis.Nil) {
				t.Fatal(err)
			}
			return value
		},
	}
}

// put stores value, or deletes the key when it is "".
func put(t *testing.T, rdb redis.UniversalClient, key, value string, ttl time.Duration) {
	t.Helper()
	err := rdb.Set(t.Context(), key, value, ttl).Err()
	if value == "" {
		err = rdb.Del(t.Context(), key).Err()
	}
	expect.OK(t, err)
}

// TestWhoListens: every client that hears what the server of a lock publishes.
func TestWhoListens(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		client redis.UniversalClient
		want   bool
	}{
		{"node", redis.NewClient(&redis.Options{}), true},
		{"sentinel", redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}}), true},
		{"cluster", redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}}), true},
		{"redis.Ring", redis.NewRing(&redis.RingOptions{HeartbeatFrequency: time.Hour}), false},
	} {
		_, have := lock.Redis(tc.client).(store.Listener)
		expect.That(t, have == tc.want, "%s: want a listener %t, have %t", tc.name, tc.want, have)
		_ = tc.client.Close()
	}
	_, listens := lock.Redis(struct{ redis.Scripter }{}).(store.Listener)
	expect.That(t, !listens, "want no listener of a client that cannot subscribe")
}
