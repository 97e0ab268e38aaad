package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sidingq/siding/internal/store"
)

// A session is a lease of etcd and the key that lives as long as it does. Each acquisition
// has one, from the time at which it joins the wait queue.
type session struct {
	lease clientv3.LeaseID
	key   string

	// The revision at which the key was created; 0 while that is not known. The requests of the
	// waiter come one after the other: they write it under Store.mu, and read it without.
	revision int64

	// Guarded by Store.mu.
	until    time.Time          // when it ends if it is not renewed
	position int64              // in the wait queue, when it joined
	joined   time.Time          // when that was
	left     time.Time          // when its waiter left
	found    bool               // a release found the lock to be its
	stop     context.CancelFunc // ends what keeps the position; nil while nothing does
}

// begin opens a session. etcd counts in whole seconds.
func (s *Store) begin(ctx context.Context, c store.Request) (*session, error) {
	start := time.Now()
	// One whose answer is lost has no key, and expires.
	lease, err := ask(ctx, func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) {
		return s.client.Grant(ctx, int64((c.TTL+time.Second-1)/time.Second))
	})
	if err != nil {
		return nil, err
	}
	return &session{
		lease: lease.ID,
		key:   fmt.Sprintf("%s%x", prefixOf(c.Key), int64(lease.ID)),
		until: start.Add(time.Duration(lease.TTL) * time.Second),
	}, nil
}

// end closes a session, if it has not ended yet.
func (s *Store) end(ctx context.Context, ses *session) error {
	_, err := ask(ctx, func(ctx context.Context) (*clientv3.LeaseRevokeResponse, error) {
		return s.client.Revoke(ctx, ses.lease)
	})
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil
	}
	return err
}

// put creates the session's key.
func (ses *session) put(c store.Request) clientv3.Op {
	return clientv3.OpPut(ses.key, c.Token, clientv3.WithLease(ses.lease))
}

// is reports whether a key, nil for none, is the session's own, and the one that it made.
func (ses *session) is(kv *mvccpb.KeyValue) bool {
	return kv != nil && string(kv.Key) == ses.key && kv.Lease == int64(ses.lease) &&
		(ses.revision == 0 || kv.CreateRevision == ses.revision)
}

// leave ends what keeps the position in the wait queue. Store.mu is held.
func (ses *session) leave() {
	ses.left = time.Now()
	if ses.stop != nil {
		ses.stop()
	}
}
