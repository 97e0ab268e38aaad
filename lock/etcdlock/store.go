package etcdlock

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/lock"
)

// A Store keeps locks in etcd. A Store is a [lock.Store], and a [store.JoinOrdered], as it wakes
// the waiters in its wait queues. A Store is safe for use by several goroutines.
type Store struct {
	client *clientv3.Client

	mu        sync.Mutex
	held      map[string]*session // by the token of who holds, or may hold, the lock by it
	owners    map[int64]*session  // those of them that do, by fence
	waiting   map[string]*session // by waiter
	listeners map[string]*listener
	swept     time.Time
}

// New returns a Store on client, which it does not close. A nil client gives a nil Store, which
// [lock.New] refuses.
func New(client *clientv3.Client) *Store {
	if client == nil {
		return nil
	}
	return &Store{
		client:    client,
		held:      make(map[string]*session),
		owners:    make(map[int64]*session),
		waiting:   make(map[string]*session),
		listeners: make(map[string]*listener),
		swept:     time.Now(),
	}
}

// prefixOf is the prefix of the keys of the holder and of all waiters of the lock of key. As
// the braces of a resource are in pairs, no lock's prefix begins another's.
func prefixOf(key string) string { return "{" + key + "}/" }

// first asks for the key that was created first, which is the holder's, and for the number
// of keys.
func first(prefix string) clientv3.Op { return clientv3.OpGet(prefix, clientv3.WithFirstCreate()...) }

// holder returns the key of who has the lock of key, nil for nobody, and how many hold
// the lock or wait for it.
func (s *Store) holder(ctx context.Context, key string) (holder *mvccpb.KeyValue, keys int64, _ error) {
	found, err := ask(ctx, func(ctx context.Context) (clientv3.OpResponse, error) { return s.client.Do(ctx, first(prefixOf(key))) })
	if err != nil {
		return nil, 0, err
	}
	if kvs := found.Get().Kvs; len(kvs) > 0 {
		holder = kvs[0]
	}
	return holder, found.Get().Count, nil
}

// Acquire implements [store.Store]. A request for a busy lock writes nothing, unless its
// waiter joins the wait queue.
func (s *Store) Acquire(ctx context.Context, c store.Request) (store.Result, error) {
	s.mu.Lock()
	s.sweep()
	held, waiting, l := s.held[c.Token], s.waiting[c.Waiter], s.listenerOf(c.Waiter)
	s.mu.Unlock()
	ctx, cancel := bounded(ctx, callTime(c.TTL))
	defer cancel()
	var result store.Result
	var err error
	switch {
	case held != nil:
		result, err = s.again(ctx, c, held)
	case waiting != nil:
		result, err = s.advance(ctx, c, waiting)
	case l != nil:
		result, err = s.join(ctx, c, l)
	default:
		result, err = s.try(ctx, c)
	}
	if err != nil {
		return store.Result{}, failed(ctx, err)
	}
	return result, nil
}

// try takes a lock that nobody holds or waits for.
func (s *Store) try(ctx context.Context, c store.Request) (store.Result, error) {
	holder, _, err := s.holder(ctx, c.Key)
	if err != nil {
		return store.Result{}, err
	}
	if holder != nil {
		return s.busy(ctx, c, holder), nil
	}
	ses, err := s.begin(ctx, c)
	if err != nil {
		return store.Result{}, err
	}
	s.mu.Lock()
	s.held[c.Token] = ses // Release finds it there, whatever becomes of the request
	s.mu.Unlock()
	prefix := prefixOf(c.Key)
	resp, err := ask(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return s.client.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(prefix), "=", 0).WithPrefix()). // there is none
			Then(ses.put(c), first(prefix)).
			Else(first(prefix)).Commit()
	})
	if err != nil {
		return store.Result{}, err
	}
	// The first key may be the session's own although the condition failed: the request was
	// sent twice.
	found := resp.Responses[len(resp.Responses)-1].GetResponseRange()
	if holder = found.Kvs[0]; ses.is(holder) {
		result, _ := s.taken(c, ses, holder.CreateRevision)
		return result, nil
	}
	s.drop(ctx, c, ses)
	return s.busy(ctx, c, holder), nil
}

// again answers a request that was sent before, and whose result was lost.
func (s *Store) again(ctx context.Context, c store.Request, ses *session) (store.Result, error) {
	holder, _, err := s.renewed(ctx, c.Key, ses)
	if err != nil {
		return store.Result{}, err
	}
	if ses.is(holder) {
		result, _ := s.taken(c, ses, holder.CreateRevision)
		return result, nil
	}
	s.drop(ctx, c, ses)
	return s.try(ctx, c)
}

// taken notes that the lock is the session's. It reports false for a waiter that has left,
// or whose session was dropped.
func (s *Store) taken(c store.Request, ses *session, revision int64) (_ store.Result, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !ses.joined.IsZero() && s.held[c.Token] != ses {
		if s.waiting[c.Waiter] != ses || !ses.left.IsZero() {
			return store.Result{}, false
		}
		delete(s.waiting, c.Waiter)
		ses.leave()
	}
	ses.revision = revision
	s.held[c.Token], s.owners[revision] = ses, ses
	return store.Result{Taken: true, Fence: revision}, true
}

// busy says who has the lock, and for how long: at most the TTL if its session has no
// end. A session that has expired has a second left, as etcd ends it soon.
func (s *Store) busy(ctx context.Context, c store.Request, holder *mvccpb.KeyValue) store.Result {
	r := store.Result{Holder: string(holder.Value), Left: c.TTL}
	if holder.Lease != 0 {
		resp, err := ask(ctx, func(ctx context.Context) (*clientv3.LeaseTimeToLiveResponse, error) {
			return s.client.TimeToLive(ctx, clientv3.LeaseID(holder.Lease))
		})
		if err == nil {
			r.Left = time.Duration(max(1, resp.TTL)) * time.Second
		}
	}
	return r
}

// Renew implements [store.Store].
func (s *Store) Renew(ctx context.Context, key, token string, ttl, _ time.Duration) error {
	s.mu.Lock()
	ses := s.held[token]
	s.mu.Unlock()
	if ses == nil {
		return lock.ErrLost
	}
	ctx, cancel := bounded(ctx, callTime(ttl))
	defer cancel()
	holder, _, err := s.renewed(ctx, key, ses)
	switch {
	case err != nil:
		return failed(ctx, err)
	case !ses.is(holder):
		return lock.ErrLost
	}
	return nil
}

// renewed renews a session. At the same time it asks for the key of who has the lock, and
// how many keys there are. If the session has ended, it returns no holder.
func (s *Store) renewed(ctx context.Context, key string, ses *session) (holder *mvccpb.KeyValue, keys int64, unknown error) {
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		holder, keys, unknown = s.holder(ctx, key)
	}()
	lives, err := s.keptAlive(ctx, ses)
	<-asked
	if err != nil || !lives {
		return nil, 0, err
	}
	return holder, keys, unknown
}

// keptAlive renews a session, and reports whether it lives.
func (s *Store) keptAlive(ctx context.Context, ses *session) (bool, error) {
	start := time.Now()
	alive, err := ask(ctx, func(ctx context.Context) (*clientv3.LeaseKeepAliveResponse, error) {
		return s.client.KeepAliveOnce(ctx, ses.lease)
	})
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ses.until = start.Add(time.Duration(alive.TTL) * time.Second)
	return true, nil
}

// Release implements [store.Store]. Release ends the session, and with that the lock's key. The
// first waiter watches that key. Release remembers what it has found until the session is swept,
// for a call that comes again.
func (s *Store) Release(ctx context.Context, key, token string, _ store.Release) error {
	s.mu.Lock()
	ses := s.held[token]
	found := ses != nil && ses.found
	if ses != nil {
		delete(s.owners, ses.revision)
	}
	s.mu.Unlock()
	if ses == nil {
		return lock.ErrLost
	}
	ctx, cancel := cleanup(ctx)
	defer cancel()
	// Look the session up first. The answer to its end does not tell whether it had expired, or an
	// earlier try of ours or of the client's has ended it. The finding of an earlier call stands.
	var unknown error
	if !found {
		var holder *mvccpb.KeyValue
		holder, _, unknown = s.holder(ctx, key)
		found = unknown == nil && ses.is(holder)
		s.mu.Lock()
		ses.found = found
		s.mu.Unlock()
	}
	if err := s.end(ctx, ses); err != nil {
		return failed(ctx, err)
	}
	s.mu.Lock()
	ses.until = time.Now() // its TTL may be long
	s.mu.Unlock()
	switch {
	case unknown != nil:
		return failed(ctx, unknown) // it is released, but nobody knows whether it was held
	case !found: // it expired, or somebody has deleted the key
		return lock.ErrLost
	}
	return nil // there is nobody to wake: no reservation and no error
}

// forget drops what is known of a session of a request, which may have another one by now. s.mu is held.
func (s *Store) forget(token string, ses *session) {
	if s.held[token] == ses {
		delete(s.held, token)
	}
	if s.owners[ses.revision] == ses {
		delete(s.owners, ses.revision)
	}
}

// drop ends a session by which nothing is held; where that fails, it expires.
func (s *Store) drop(ctx context.Context, c store.Request, ses *session) {
	s.mu.Lock()
	s.forget(c.Token, ses)
	if s.waiting[c.Waiter] == ses {
		delete(s.waiting, c.Waiter)
		ses.leave()
	}
	s.mu.Unlock()
	ctx, cancel := cleanup(ctx)
	defer cancel()
	_ = s.end(ctx, ses)
}

// sweep drops, now and then, what is known of sessions that have ended by themselves. Nobody has
// released them, or etcd could not be asked to end them. The caller holds s.mu.
func (s *Store) sweep() {
	const every = time.Minute
	now := time.Now()
	if now.Sub(s.swept) < every {
		return
	}
	s.swept = now
	for token, ses := range s.held {
		if now.Sub(ses.until) > every {
			s.forget(token, ses)
		}
	}
	for waiter, ses := range s.waiting {
		if !ses.left.IsZero() && now.Sub(ses.left) > every {
			delete(s.waiting, waiter)
		}
	}
}
