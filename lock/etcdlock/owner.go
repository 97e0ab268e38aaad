package etcdlock

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sidingq/siding/lock"
)

// An Owner names one acquisition of a lock. A program may send its Owner to others, which then
// write to etcd on condition that this acquisition still holds the lock.
type Owner struct {
	Key      string // of its session
	Revision int64  // at which that was created; the fencing token
}

// Held is the condition that o still holds the lock. A transaction of etcd checks the condition in
// the step in which it writes.
func (o Owner) Held() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(o.Key), "=", o.Revision)
}

// Owner returns the acquisition of resource under which ctx runs: ctx comes from its
// [lock.Lease.Context], in this process and by this Store. The error is [lock.ErrNoFence] if ctx
// runs under no lock of resource. It matches [lock.ErrLost] if the lock has been released, or is
// not of this Store. Owner knows the lock by its fencing token. So a lock of another etcd cluster
// that has the same revision by chance is taken for one of this Store's.
func (s *Store) Owner(ctx context.Context, resource string) (Owner, error) {
	fence := lock.Fence(ctx, resource)
	if fence == 0 {
		return Owner{}, lock.ErrNoFence
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ses := s.owners[fence]
	if ses == nil {
		return Owner{}, fmt.Errorf("etcdlock: no lock of revision %d: %w", fence, lock.ErrLost)
	}
	return Owner{Key: ses.key, Revision: fence}, nil
}

// Commit applies ops on keys of etcd in one transaction, if the lock of resource under which ctx
// runs is held at that moment. If the lock is not held, nothing is changed, and the error matches
// [lock.ErrLost]. Other errors are those of [Store.Owner] and of etcd. etcd is asked once, and has
// 3 s to answer. After an error of etcd the transaction may have been applied. For conditions of
// your own use [clientv3.OpTxn]. For data that several locks guard, use a transaction on the
// [Owner.Held] of each.
func (s *Store) Commit(ctx context.Context, resource string, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	owner, err := s.Owner(ctx, resource)
	if err != nil {
		return nil, err
	}
	ctx, cancel := bounded(ctx, longestCall)
	defer cancel()
	resp, err := s.client.Txn(ctx).If(owner.Held()).Then(ops...).Commit()
	if err != nil {
		return nil, fmt.Errorf("etcdlock: commit: %w", failed(ctx, err))
	}
	if !resp.Succeeded {
		return nil, fmt.Errorf("etcdlock: commit refused, as revision %d holds the lock no longer: %w", owner.Revision, lock.ErrLost)
	}
	return resp, nil
}
