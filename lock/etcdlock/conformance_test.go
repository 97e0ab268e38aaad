package etcdlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/etcdlock"
	"github.com/sidingq/siding/lock/locktest"
)

// TestConformance runs the suite of lock/locktest on a real etcd.
func TestConformance(t *testing.T) {
	t.Parallel()
	verify.Long(t)
	locktest.Run(t, backend(t))
}

// TestSmoke runs the smallest part of it.
func TestSmoke(t *testing.T) {
	t.Parallel()
	locktest.Smoke(t, backend(t))
}

// backend is what the suite needs of an etcd.
func backend(t *testing.T) locktest.Backend {
	t.Helper()
	server := startEtcd(t)
	admin := connect(t, server.Addr)
	return locktest.Backend{
		Open: func(t *testing.T) lock.Store { t.Helper(); return etcdlock.New(connect(t, server.Addr)) },
		Put: func(t *testing.T, key, value string, ttl time.Duration) {
			t.Helper()
			put(t, admin, key, value, ttl)
		},
		Value: func(t *testing.T, key string) string { t.Helper(); return holderOf(t, admin, key) },
	}
}

// prefixOf is what the keys of a lock begin with.
func prefixOf(key string) string { return "{" + key + "}/" }

// holderOf returns the value of who has the lock, "" for nobody.
func holderOf(t *testing.T, client *clientv3.Client, key string) string {
	t.Helper()
	resp := expect.Value(client.Get(t.Context(), prefixOf(key), clientv3.WithFirstCreate()...))(t)
	if len(resp.Kvs) == 0 {
		return ""
	}
	return string(resp.Kvs[0].Value)
}

// put has another program hold the lock, by the key of its holder if there is one; for
// value "" it deletes that key.
func put(t *testing.T, client *clientv3.Client, key, value string, ttl time.Duration) {
	t.Helper()
	resp, err := client.Get(t.Context(), prefixOf(key), clientv3.WithFirstCreate()...)
	expect.OK(t, err)
	name := prefixOf(key) + "another"
	if len(resp.Kvs) > 0 {
		name = string(resp.Kvs[0].Key)
	}
	if value == "" {
		_, err = client.Delete(t.Context(), name)
	} else {
		var lease *clientv3.LeaseGrantResponse
		if lease, err = client.Grant(t.Context(), int64(ttl/time.Second)); err == nil {
			_, err = client.Put(t.Context(), name, value, clientv3.WithLease(lease.ID))
		}
	}
	expect.OK(t, err)
}

// A recipe locks by etcd's own package.
func recipe(t *testing.T, client *clientv3.Client, resource string) *concurrency.Mutex {
	t.Helper()
	session := expect.Value(concurrency.NewSession(client, concurrency.WithTTL(60)))(t)
	t.Cleanup(func() { _ = session.Close() })
	return concurrency.NewMutex(session, "{lock:"+resource+"}")
}

// TestRecipe: programs that use etcd's own recipe are excluded, exclude, and share a wait
// queue with ours.
func TestRecipe(t *testing.T) {
	t.Parallel()
	server := startEtcd(t)
	client := connect(t, server.Addr)
	ours, _ := lockerOn(t, connect(t, server.Addr), lock.Config{})

	theirs := recipe(t, client, t.Name())
	expect.OK(t, theirs.Lock(t.Context()))
	_, err := ours.Acquire(t.Context(), t.Name(), nil)
	if busy, ok := errors.AsType[*lock.BusyError](err); !ok || !busy.Foreign || busy.Remaining.Seconds() < 30 || busy.Remaining.Seconds() > 60 {
		t.Errorf("want it held by another program for up to 60s, have %+v", err)
	}
	waiters := newWaiters(t, client, t.Name())
	waiters.join(ours)
	other := recipe(t, client, t.Name())
	waiters.joins(func(ctx context.Context) (func(context.Context) error, error) { return other.Unlock, other.Lock(ctx) })
	expect.Eventually(t, "theirs in the wait queue", func() bool { return len(keysOf(t, client, t.Name())) == 3 })
	waiters.join(ours)
	expect.OK(t, theirs.Unlock(t.Context()))
	waiters.wantServed(0, 1, 2)

	lease := take(t, ours, t.Name())
	expect.Is(t, "try theirs", recipe(t, client, t.Name()).TryLock(t.Context()), concurrency.ErrLocked)
	release(t, lease)
}
