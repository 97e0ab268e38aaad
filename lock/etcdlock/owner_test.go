package etcdlock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
)

func valueOf(t *testing.T, client *clientv3.Client, key string) string {
	t.Helper()
	resp := expect.Value(client.Get(t.Context(), key))(t)
	if len(resp.Kvs) == 0 {
		return ""
	}
	return string(resp.Kvs[0].Value)
}

// TestCommit writes as long as the lock is held, and not a moment longer, whatever the
// holder believes. The lock of another resource, which it has taken within, does not count.
func TestCommit(t *testing.T) {
	t.Parallel()
	server := startEtcd(t)
	admin := connect(t, server.Addr)
	locker, store := lockerOn(t, connect(t, server.Addr), lock.Config{})
	rival, _ := lockerOn(t, connect(t, server.Addr), lock.Config{})
	lease := take(t, locker, "a")
	inner := take(t, locker, "b")
	work := inner.Context(lease.Context(t.Context()))
	resp, err := store.Commit(work, "a", clientv3.OpPut("balance", "1"), clientv3.OpGet("balance"))
	expect.Need(t, err == nil && len(resp.Responses) == 2, "want it applied, have %v, %v", resp, err)
	owner, err := store.Owner(work, "a")
	expect.Need(t, err == nil && owner.Revision == lease.Fence(), "want the revision %d, have %+v, %v", lease.Fence(), owner, err)
	// The key of the lock is gone, and the holder has not noticed yet.
	expect.OK(t, expect.Err(admin.Delete(t.Context(), owner.Key)))
	later := take(t, rival, "a")
	expect.Need(t, !lease.Deadline().IsZero(), "want a holder that believes to hold the lock")
	expect.Is(t, "commit", expect.Err(store.Commit(work, "a", clientv3.OpPut("balance", "2"))), lock.ErrLost)
	expect.OK(t, expect.Err(store.Commit(work, "b", clientv3.OpPut("of b", "1"))))
	// Another program, to which the owner was passed on.
	other, err := admin.Txn(t.Context()).If(owner.Held()).Then(clientv3.OpPut("balance", "3")).Commit()
	expect.That(t, err == nil && !other.Succeeded, "want it refused, have %v, %v", other, err)
	expect.Equal(t, "balance", valueOf(t, admin, "balance"), "1")
	release(t, later)
	release(t, inner)
	_ = lease.Release(t.Context())
	expect.Is(t, "after the release", expect.Err(store.Commit(work, "a", clientv3.OpPut("balance", "4"))), lock.ErrLost)
}

// TestCommitOfUnknownOutcome: the lock is lost before etcd has answered. The error says that the
// outcome is unknown, as the transaction may have been applied.
func TestCommitOfUnknownOutcome(t *testing.T) {
	t.Parallel()
	server := startEtcd(t)
	proxy := locktest.NewProxy(t, server.Addr)
	locker, store := lockerOn(t, connect(t, proxy.Addr), brief)
	work := take(t, locker, "a").Context(t.Context())
	proxy.SwallowReplies(true)
	_, err := store.Commit(work, "a", clientv3.OpPut("balance", "1"))
	expect.That(t, err != nil && !errors.Is(err, lock.ErrLost), "want an error that is not ErrLost, have %v", err)
	<-work.Done()
	expect.Is(t, "cause", context.Cause(work), lock.ErrLost)
	expect.Equal(t, "balance, as it was applied", valueOf(t, connect(t, server.Addr), "balance"), "1")
}

// TestOwner of contexts that run under no lock of the store.
func TestOwner(t *testing.T) {
	t.Parallel()
	server := startEtcd(t)
	_, store := lockerOn(t, connect(t, server.Addr), lock.Config{})
	for fence, want := range map[int64]error{
		0:                     lock.ErrNoFence,
		12345:                 lock.ErrLost, // of another process
		1_790_000_000_000_000: lock.ErrLost, // of a lock on Redis
	} {
		ctx := locktest.WithFence(t.Context(), "a", fence)
		expect.Is(t, fmt.Sprintf("fence %d", fence), expect.Err(store.Owner(ctx, "a")), want)
		expect.Is(t, fmt.Sprintf("fence %d: commit", fence), expect.Err(store.Commit(ctx, "a", clientv3.OpPut("k", "v"))), want)
	}
}
