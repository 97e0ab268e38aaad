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
// holder believes.
func TestCommit(t *testing.T) {
	t.Parallel()
	server := startEtcd(t)
	admin := connect(t, server.Addr)
	locker, store := lockerOn(t, connect(t, server.Addr), lock.Config{})
	rival, _ := lockerOn(t, connect(t, server.Addr), lock.Config{})
	lease := take(t, locker, "a")
	work := lease.Context(t.Context())
	resp, err := store.Commit(work, "a", clientv3.OpPut("balance", "1"), clientv3.OpGet("balance"))
	expect.Need(t, err == nil && len(resp.Responses) == 2, "want it applied, have %v, %v", resp, err)
	owner, err := store.Owner(work, "a")
	expect.Need(t, err == nil && owner.Revision == lease.Fence(), "want the revision %d, have %+v, %v", lease.Fence(), owner, err)
	// The key of the lock is gone, and the holder has not noticed yet.
	expect.OK(t, expect.Err(admin.Delete(t.Context(), owner.Key)))
	later := take(t, rival, "a")
	expect.Need(t, !lease.Deadline().IsZero(), "want a holder that believes to hold the lock")
	expect.Is(t, "commit", expect.Err(store.Commit(work, "a", clientv3.OpPut("balance", "2"))), lock.ErrLost)
	// Another program, to which the owner was passed on.
	other, err := admin.Txn(t.Context()).If(owner.Held()).Then(clientv3.OpPut("balance", "3")).Commit()
	expect.That(t, err == nil && !other.Succeeded, "want it refused, have %v, %v", other, err)
	expect.Equal(t, "balance", valueOf(t, admin, "balance"), "1")
	release(t, later)
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

// TestCommitInOwnConditions combines the owner's condition with one of the caller.
func TestCommitInOwnConditions(t *testing.T) {
	t.Parallel()
	server := startEtcd(t)
	client := connect(t, server.Addr)
	locker, store := lockerOn(t, client, lock.Config{})
	err := locker.Do(t.Context(), t.Name(), nil, func(ctx context.Context) error {
		for range 2 {
			_, err := store.Commit(ctx, t.Name(), clientv3.OpTxn(
				[]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision("done"), "=", 0)},
				[]clientv3.Op{clientv3.OpPut("done", "once"), clientv3.OpPut("n", "1")},
				[]clientv3.Op{clientv3.OpPut("again", "yes")},
			))
			if err != nil {
				return err
			}
		}
		return nil
	})
	expect.That(t, err == nil && valueOf(t, client, "n") == "1" && valueOf(t, client, "again") == "yes",
		"want both applied in turn, have %v", err)
}

// TestCommitUnderNestedLocks: the lock of each resource counts for what is written of it.
func TestCommitUnderNestedLocks(t *testing.T) {
	t.Parallel()
	server := startEtcd(t)
	admin := connect(t, server.Addr)
	for _, lost := range []string{"", "order", "item"} {
		locker, store := lockerOn(t, connect(t, server.Addr), lock.Config{})
		rival, _ := lockerOn(t, connect(t, server.Addr), lock.Config{})
		outer := take(t, locker, "order")
		order := outer.Context(t.Context())
		inner := take(t, locker, "item")
		both := inner.Context(order)
		var later *lock.Lease
		if lost != "" {
			owner := expect.Value(store.Owner(both, lost))(t)
			expect.OK(t, expect.Err(admin.Delete(t.Context(), owner.Key)))
			later = take(t, rival, lost)
		}
		for _, resource := range []string{"order", "item"} {
			_, err := store.Commit(both, resource, clientv3.OpPut("of "+resource, "1"))
			expect.That(t, errors.Is(err, lock.ErrLost) == (resource == lost) && (resource == lost || err == nil),
				"%s lost: want ErrLost of that alone, have %v for %s", lost, err, resource)
		}
		_, _ = inner.Release(t.Context()), outer.Release(t.Context())
		if later != nil {
			release(t, later)
		}
	}
}
