package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/lock"
)

// A Store keeps locks in etcd. It is a [lock.Store] and, as it tells those who wait in its
// lines when it is their turn, a [store.JoinOrdered]. It is safe for use by several
// goroutines.
type Store struct {
	client *clientv3.Client

	mu      sync.Mutex
	held    map[string]*session // by the token of who holds, or may hold, the lock by it
	owners  map[int64]*session  // those of them that do, by fence
	waiting map[string]*session // by waiter
	ears    map[string]*ear     // by id
	swept   time.Time
}

// New returns a Store on client, which it does not close.
func New(client *clientv3.Client) *Store {
	return &Store{
		client:  client,
		held:    make(map[string]*session),
		owners:  make(map[int64]*session),
		waiting: make(map[string]*session),
		ears:    make(map[string]*ear),
		swept:   time.Now(),
	}
}

// lineOf is the prefix of the keys of all who hold, or wait for, the lock of key. As
// a resource has no braces, no lock's prefix begins another's.
func lineOf(key string) string { return "{" + key + "}/" }

// first asks for the key that was created first, which is the holder's, and how many
// there are.
func first(line string) clientv3.Op { return clientv3.OpGet(line, clientv3.WithFirstCreate()...) }

// holder returns the key of who has the lock of key, nil for nobody, and how many
// hold it or wait for it.
func (s *Store) holder(ctx context.Context, key string) (holder *mvccpb.KeyValue, keys int64, _ error) {
	found, err := ask(ctx, func(ctx context.Context) (clientv3.OpResponse, error) { return s.client.Do(ctx, first(lineOf(key))) })
	if err != nil {
		return nil, 0, err
	}
	if kvs := found.Get().Kvs; len(kvs) > 0 {
		holder = kvs[0]
	}
	return holder, found.Get().Count, nil
}

// Acquire implements [store.Store]. A claim that is refused writes nothing, unless its
// waiter joins the line.
func (s *Store) Acquire(ctx context.Context, c store.Claim) (store.Answer, error) {
	s.mu.Lock()
	s.sweep()
	held, waiting, e := s.held[c.Token], s.waiting[c.Waiter], s.earOf(c.Waiter)
	s.mu.Unlock()
	ctx, cancel := bounded(ctx, callTime(c.TTL))
	defer cancel()
	var answer store.Answer
	var err error
	switch {
	case held != nil:
		answer, err = s.again(ctx, c, held)
	case waiting != nil:
		answer, err = s.come(ctx, c, waiting)
	case e != nil:
		answer, err = s.join(ctx, c, e)
	default:
		answer, err = s.try(ctx, c)
	}
	if err != nil {
		return store.Answer{}, failed(ctx, err)
	}
	return answer, nil
}

// try takes a lock that nobody holds or waits for.
func (s *Store) try(ctx context.Context, c store.Claim) (store.Answer, error) {
	holder, _, err := s.holder(ctx, c.Key)
	if err != nil {
		return store.Answer{}, err
	}
	if holder != nil {
		return s.refusal(ctx, c, holder), nil
	}
	ses, err := s.begin(ctx, c)
	if err != nil {
		return store.Answer{}, err
	}
	s.mu.Lock()
	s.held[c.Token] = ses // Release finds it there, whatever becomes of the request
	s.mu.Unlock()
	line := lineOf(c.Key)
	resp, err := ask(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return s.client.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(line), "=", 0).WithPrefix()). // there is none
			Then(ses.put(c), first(line)).
			Else(first(line)).Commit()
	})
	if err != nil {
		return store.Answer{}, err
	}
	// Also where that was refused it may be the session's own, if it was sent twice.
	found := resp.Responses[len(resp.Responses)-1].GetResponseRange()
	if holder = found.Kvs[0]; ses.is(holder) {
		answer, _ := s.taken(c, ses, holder.CreateRevision)
		return answer, nil
	}
	s.drop(ctx, c, ses)
	return s.refusal(ctx, c, holder), nil
}

// again answers a claim that was sent before, and whose answer was lost.
func (s *Store) again(ctx context.Context, c store.Claim, ses *session) (store.Answer, error) {
	holder, _, err := s.renewed(ctx, c.Key, ses)
	if err != nil {
		return store.Answer{}, err
	}
	if ses.is(holder) {
		answer, _ := s.taken(c, ses, holder.CreateRevision)
		return answer, nil
	}
	s.drop(ctx, c, ses)
	return s.try(ctx, c)
}

// taken notes that the lock is the session's; false if that was a waiter's, which has left
// or whose session was dropped.
func (s *Store) taken(c store.Claim, ses *session, revision int64) (_ store.Answer, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !ses.joined.IsZero() && s.held[c.Token] != ses {
		if s.waiting[c.Waiter] != ses || !ses.left.IsZero() {
			return store.Answer{}, false
		}
		delete(s.waiting, c.Waiter)
		ses.leave()
	}
	ses.revision = revision
	s.held[c.Token], s.owners[revision] = ses, ses
	handOff := time.Duration(-1)
	if !ses.called.IsZero() {
		handOff = time.Since(ses.called)
	}
	return store.Answer{Taken: true, Fence: revision, HandOff: handOff}, true
}

// refusal says who has the lock. How long a session lives on that has no end is not
// known; how long one that has expired does is not, either: etcd ends it soon.
func (s *Store) refusal(ctx context.Context, c store.Claim, holder *mvccpb.KeyValue) store.Answer {
	a := store.Answer{Holder: string(holder.Value), Left: c.TTL}
	if holder.Lease != 0 {
		resp, err := ask(ctx, func(ctx context.Context) (*clientv3.LeaseTimeToLiveResponse, error) {
			return s.client.TimeToLive(ctx, clientv3.LeaseID(holder.Lease))
		})
		if err == nil {
			a.Left = time.Duration(max(1, resp.TTL)) * time.Second
		}
	}
	return a
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

// renewed renews a session and, at the same time, asks for the key of who has the lock, and
// how many keys there are. Of a session that has ended it is as if nobody had it.
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

// Release implements [store.Store]: it ends the session, and with it the lock's key, which
// the next in line sees. What it has found is remembered until the session is swept, for a
// call that comes again.
func (s *Store) Release(ctx context.Context, key, token string, _ store.Line) (*store.Turn, error) {
	s.mu.Lock()
	ses := s.held[token]
	found := ses != nil && ses.found
	if ses != nil {
		delete(s.owners, ses.revision)
	}
	s.mu.Unlock()
	if ses == nil {
		return nil, lock.ErrLost
	}
	ctx, cancel := cleanup(ctx)
	defer cancel()
	// Looked up first: what ending the session says does not tell one that had expired from
	// one that an earlier try, of ours or of the client's, has ended. What an earlier call has
	// found stands.
	var unknown error
	if !found {
		var holder *mvccpb.KeyValue
		holder, _, unknown = s.holder(ctx, key)
		found = unknown == nil && ses.is(holder)
		s.mu.Lock()
		ses.found = found
		s.mu.Unlock()
	}
	switch err := s.end(ctx, ses); {
	case err != nil:
		return nil, failed(ctx, err)
	case unknown != nil:
		return nil, failed(ctx, unknown) // it is released, but nobody knows whether it was held
	case !found: // it expired, or somebody has deleted the key
		return nil, lock.ErrLost
	}
	return nil, nil //nolint:nilnil // nobody has to be called: no turn and no error
}

// forget drops what is known of a claim. s.mu is held.
func (s *Store) forget(token string, ses *session) {
	delete(s.held, token)
	delete(s.owners, ses.revision)
}

// drop ends a session by which nothing is held; where that fails, it expires.
func (s *Store) drop(ctx context.Context, c store.Claim, ses *session) {
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

// sweep drops, now and then, what is known of sessions that have ended, because nobody has
// released them or etcd could not be asked to end them. s.mu is held.
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

// A session is a lease of etcd and the key that lives as long as it does. There is one
// for each acquisition, from the time at which it joins the line.
type session struct {
	lease clientv3.LeaseID
	key   string

	// At which the key was created; 0 while that is not known. It is written under Store.mu, by
	// the claims of its waiter, which come one after the other and read it without.
	revision int64

	// Guarded by Store.mu.
	until  time.Time          // when it ends if it is not renewed
	place  int64              // in line, when it joined
	joined time.Time          // when that was
	called time.Time          // when its turn came
	left   time.Time          // when it left the line
	found  bool               // a release found the lock to be its
	stop   context.CancelFunc // ends what keeps the place; nil while nothing does
}

// begin opens a session. etcd counts in whole seconds.
func (s *Store) begin(ctx context.Context, c store.Claim) (*session, error) {
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
		key:   fmt.Sprintf("%s%x", lineOf(c.Key), int64(lease.ID)),
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
func (ses *session) put(c store.Claim) clientv3.Op {
	return clientv3.OpPut(ses.key, c.Token, clientv3.WithLease(ses.lease))
}

// is reports whether a key, nil for none, is the session's own, and the one that it made.
func (ses *session) is(kv *mvccpb.KeyValue) bool {
	return kv != nil && string(kv.Key) == ses.key && kv.Lease == int64(ses.lease) &&
		(ses.revision == 0 || kv.CreateRevision == ses.revision)
}

// leave ends what keeps the place in line. Store.mu is held.
func (ses *session) leave() {
	ses.left = time.Now()
	if ses.stop != nil {
		ses.stop()
	}
}
