package etcdlock

import (
	"context"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/store"
)

// A listener is one call of Listen. It renews the sessions of its waiters, and wakes them.
type listener struct {
	ctx     context.Context //nolint:containedctx // that of Listen
	wake    func(waiter string)
	running sync.WaitGroup // what it does for its waiters
}

// listenerOf returns the listener that wakes a waiter; nil for none. s.mu is held.
func (s *Store) listenerOf(waiter string) *listener {
	id, listens := store.ListenerOf(waiter)
	if !listens {
		return nil
	}
	return s.listeners[id]
}

// JoinOrdered implements [store.JoinOrdered].
func (s *Store) JoinOrdered() {}

// Listen implements [store.Listener].
func (s *Store) Listen(ctx context.Context, id string, listening func(), wake func(waiter string)) error {
	l := &listener{ctx: ctx, wake: wake}
	s.mu.Lock()
	s.listeners[id] = l
	s.mu.Unlock()
	listening()
	<-ctx.Done()
	s.mu.Lock()
	delete(s.listeners, id) // no waiter joins by it from now on
	s.mu.Unlock()
	l.running.Wait()
	return ctx.Err()
}

// join puts a waiter into the wait queue.
func (s *Store) join(ctx context.Context, c store.Request, l *listener) (store.Result, error) {
	ses, err := s.begin(ctx, c)
	if err != nil {
		return store.Result{}, err
	}
	ses.joined = time.Now()
	s.mu.Lock()
	s.waiting[c.Waiter] = ses // Leave finds it there, whatever becomes of the request
	s.mu.Unlock()
	return s.enter(ctx, c, ses, l)
}

// enter creates the key of a waiter, if it has none. The key is its place in the wait
// queue. If nobody is before it, the waiter gets the lock.
func (s *Store) enter(ctx context.Context, c store.Request, ses *session, l *listener) (store.Result, error) { //nolint:contextcheck // a position outlives the call
	prefix := prefixOf(c.Key)
	resp, err := ask(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return s.client.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(ses.key), "=", 0)).
			Then(ses.put(c), first(prefix)).
			Else(clientv3.OpGet(ses.key), first(prefix)).Commit()
	})
	if err != nil {
		return store.Result{}, err
	}
	revision := resp.Header.Revision
	if !resp.Succeeded {
		revision = resp.Responses[0].GetResponseRange().Kvs[0].CreateRevision
	}
	found := resp.Responses[1].GetResponseRange()
	holder := found.Kvs[0]
	if ses.is(holder) {
		result, _ := s.taken(c, ses, revision) // nothing ends the session yet
		return result, nil
	}
	s.mu.Lock()
	ses.revision, ses.position = revision, found.Count-1
	if s.listenerOf(c.Waiter) == l && s.waiting[c.Waiter] == ses {
		var waits context.Context
		waits, ses.stop = context.WithCancel(l.ctx)
		l.running.Go(func() { s.keepPosition(waits, c, ses, l) })
		l.running.Go(func() { s.watch(waits, prefix, c, revision, l) })
	}
	s.mu.Unlock()
	return s.busyWaiter(ctx, c, ses, holder, found.Count), nil
}

// advance takes the lock for a waiter that is the first in the wait queue.
func (s *Store) advance(ctx context.Context, c store.Request, ses *session) (store.Result, error) {
	holder, keys, err := s.renewed(ctx, c.Key, ses)
	if err != nil {
		return store.Result{}, err
	}
	s.mu.Lock()
	revision, l := ses.revision, s.listenerOf(c.Waiter)
	s.mu.Unlock()
	switch {
	case ses.is(holder):
		// The lock is not given by a session that was dropped meanwhile.
		if result, ok := s.taken(c, ses, holder.CreateRevision); ok {
			return result, nil
		}
	case holder != nil && holder.CreateRevision < revision:
		return s.busyWaiter(ctx, c, ses, holder, keys), nil
	case holder != nil && revision == 0 && l != nil: // perhaps it has joined
		return s.enter(ctx, c, ses, l)
	}
	// The session of the waiter has ended, or its key was deleted. So the waiter has lost its
	// position.
	s.drop(ctx, c, ses)
	if l == nil {
		return s.try(ctx, c)
	}
	return s.join(ctx, c, l)
}

// busyWaiter says who has the lock, and the position of a waiter.
func (s *Store) busyWaiter(ctx context.Context, c store.Request, ses *session, holder *mvccpb.KeyValue, keys int64) store.Result {
	r := s.busy(ctx, c, holder)
	s.mu.Lock()
	defer s.mu.Unlock()
	ses.position = max(1, min(ses.position, keys-1))
	r.Position = int(ses.position)
	return r
}

// Leave implements [store.Store].
func (s *Store) Leave(ctx context.Context, key, waiter string, _ store.Leave) error {
	s.mu.Lock()
	ses := s.waiting[waiter]
	if ses != nil {
		ses.leave()
	}
	s.mu.Unlock()
	ctx, cancel := cleanup(ctx)
	defer cancel()
	var err error
	if ses == nil { // it does not wait
		_, _, err = s.holder(ctx, key)
	} else {
		err = s.end(ctx, ses)
	}
	if err != nil {
		return failed(ctx, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting[waiter] == ses {
		delete(s.waiting, waiter)
	}
	return nil // the next waiter watches the key
}

// keepPosition renews the session of a waiter until ctx ends. If the session ends first,
// keepPosition wakes the waiter, which then joins anew.
//
// The client's own KeepAlive would not do. That has one connection for all sessions, and takes them
// for ended while a member hangs.
func (s *Store) keepPosition(ctx context.Context, c store.Request, ses *session, l *listener) {
	const retryEvery = 10 // tries in the time between two renewals
	renewEvery := c.TTL / 3
	timer := time.NewTimer(renewEvery)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		lives, err := s.renew(ctx, c.TTL, ses)
		s.mu.Lock()
		expired := time.Now().After(ses.until)
		s.mu.Unlock()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && lives:
			timer.Reset(renewEvery)
		case err == nil || expired:
			if s.expire(ctx, c, ses) {
				l.wake(c.Waiter)
			}
			return
		default:
			timer.Reset(renewEvery / retryEvery)
		}
	}
}

// renew renews the session of a waiter, and reports whether it lives.
func (s *Store) renew(ctx context.Context, ttl time.Duration, ses *session) (lives bool, _ error) {
	ctx, cancel := bounded(ctx, callTime(ttl))
	defer cancel()
	return s.keptAlive(ctx, ses)
}

// expire drops a session that has ended, or seems to have, while its waiter waited. expire reports
// false if the waiter has the lock by the session, or has left.
func (s *Store) expire(ctx context.Context, c store.Request, ses *session) bool {
	s.mu.Lock()
	waits := s.waiting[c.Waiter] == ses
	if waits {
		delete(s.waiting, c.Waiter) // from here on the session gives no lock
		ses.leave()
	}
	s.mu.Unlock()
	if waits {
		s.drop(ctx, c, ses)
	}
	return waits
}

// watch wakes a waiter once nobody is before it, unless ctx ends first.
func (s *Store) watch(ctx context.Context, prefix string, c store.Request, revision int64, l *listener) {
	for ctx.Err() == nil {
		before, at, err := s.before(ctx, prefix, revision)
		if err == nil && before == "" {
			l.wake(c.Waiter)
			return
		}
		s.await(ctx, before, at)
	}
}

// before returns the last key that was created before a revision, or "". at is the revision of etcd
// at which that was so.
func (s *Store) before(ctx context.Context, prefix string, revision int64) (key string, at int64, _ error) {
	ctx, cancel := context.WithTimeout(ctx, longestCall)
	defer cancel()
	resp, err := ask(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return s.client.Get(ctx, prefix, append(clientv3.WithLastCreate(), clientv3.WithMaxCreateRev(revision-1))...)
	})
	if err != nil {
		return "", 0, err
	}
	if len(resp.Kvs) > 0 {
		key = string(resp.Kvs[0].Key)
	}
	return key, resp.Header.Revision, nil
}

// await returns when a key has been deleted after the revision at, or when it is time to look
// again. That is soon if the key is not known or cannot be watched. await returns after some
// seconds in any case, as a member that hangs tells nothing.
func (s *Store) await(ctx context.Context, key string, at int64) {
	const (
		lookAgain = 100 * time.Millisecond
		lookLast  = 5 * time.Second
	)
	if key != "" {
		ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), lookLast)
		defer cancel()
		for resp := range s.client.Watch(ctx, key, clientv3.WithRev(at+1), clientv3.WithFilterPut()) {
			if resp.Err() != nil {
				break
			}
			if len(resp.Events) > 0 {
				return
			}
		}
	}
	_ = sleep.For(ctx, lookAgain)
}
