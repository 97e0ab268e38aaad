package interop_test

import (
	"errors"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/redlock"
)

// TestQuorum: redsync on the same servers excludes us, and we exclude it, also while one server is
// down.
func TestQuorum(t *testing.T) {
	t.Parallel()
	for name, down := range map[string]bool{"all up": false, "one down": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const nodes = 3
			var theirs []redsyncredis.Pool
			var ours []*redis.Client
			for i := range nodes {
				server := redistest.Start(t)
				theirs = append(theirs, goredis.NewPool(quickClient(t, server.Addr)))
				ours = append(ours, quickClient(t, server.Addr))
				if down && i == 1 {
					server.Kill()
				}
			}
			store := expect.Value(redlock.New(t.Context(), ours, redlock.Config{NodeTimeout: time.Second, RestartDelay: redlock.NoRestartDelay}))(t)
			locker := expect.Value(lock.New(store, lock.Config{TTL: ttl}))(t)
			t.Cleanup(locker.Close)
			peer := redsyncPeer{redsync.New(theirs...)}

			held, err := peer.Take(t.Context(), "lock:"+t.Name())
			if err != nil {
				t.Fatal(err)
			}
			_, err = locker.Acquire(t.Context(), t.Name(), nil)
			if busy, ok := errors.AsType[*lock.BusyError](err); !ok || !busy.Foreign || busy.Remaining <= 0 || busy.Remaining > ttl {
				t.Errorf("want it busy with another program for up to %v, have %v", ttl, err)
			}
			if err := held.Release(t.Context()); err != nil && !down { // one that is down is an error there
				t.Errorf("release by redsync: %v", err)
			}
			lease := expect.Value(locker.Acquire(t.Context(), t.Name(), nil))(t)
			if _, err := peer.Take(t.Context(), "lock:"+t.Name()); err == nil {
				t.Error("want redsync refused, have it the holder")
			}
			if err := lease.Renew(t.Context()); err != nil {
				t.Errorf("renew: %v", err)
			}
			if err := lease.Release(t.Context()); err != nil {
				t.Errorf("release: %v", err)
			}
		})
	}
}

// quickClient sees at once that a server is down.
func quickClient(t *testing.T, addr string) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, DialerRetries: 1, MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	return client
}
