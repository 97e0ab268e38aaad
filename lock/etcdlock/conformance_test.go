package etcdlock_test

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sidingq/siding/internal/testenv/etcdtest"
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
	server := etcdtest.Start(t)
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
	resp, err := client.Get(t.Context(), prefixOf(key), clientv3.WithFirstCreate()...)
	must(t, err)
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
	must(t, err)
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
	if err != nil {
		t.Fatal(err)
	}
}
