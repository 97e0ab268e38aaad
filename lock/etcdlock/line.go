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

// An ear is one call of Listen, and keeps the places of those who wait by it.
type ear struct {
	ctx     context.Context //nolint:containedctx // that of Listen
	call    func(waiter string)
	keeping sync.WaitGroup
}

// earOf returns the ear that tells waiter; nil for none. s.mu is held.
func (s *Store) earOf(waiter string) *ear {
	id, listens := store.ListenerOf(waiter)
	if !listens {
		return nil
	}
	return s.ears[id]
}

// JoinOrdered implements [store.JoinOrdered].
func (s *Store) JoinOrdered() {}

// Listen implements [store.Listener].
func (s *Store) Listen(ctx context.Context, id string, heard func(), call func(waiter string)) error {
	e := &ear{ctx: ctx, call: call}
	s.mu.Lock()
	s.ears[id] = e
	s.mu.Unlock()
	heard()
	<-ctx.Done()
	s.mu.Lock()
	delete(s.ears, id) // and nobody joins by it any more
	s.mu.Unlock()
	e.keeping.Wait()
	return ctx.Err()
}

// join puts a waiter in line.
func (s *Store) join(ctx context.Context, c store.Claim, e *ear) (store.Answer, error) {
	ses, err := s.begin(ctx, c)
	if err != nil {
		return store.Answer{}, err
	}
	ses.joined = time.Now()
	s.mu.Lock()
	s.waiting[c.Waiter] = ses // Leave finds it there, whatever becomes of the request
	s.mu.Unlock()
	return s.stand(ctx, c, ses, e)
}

// stand creates the key of a waiter, if it has none, which is its place in line. If
// nobody is before it, the lock is its.
func (s *Store) stand(ctx context.Context, c store.Claim, ses *session, e *ear) (store.Answer, error) { //nolint:contextcheck // a place is kept for longer than the call
	line := lineOf(c.Key)
	resp, err := ask(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return s.client.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(ses.key), "=", 0)).
			Then(ses.put(c), first(line)).
			Else(clientv3.OpGet(ses.key), first(line)).Commit()
	})
	if err != nil {
		return store.Answer{}, err
	}
	revision := resp.Header.Revision
	if !resp.Succeeded {
		revision = resp.Responses[0].GetResponseRange().Kvs[0].CreateRevision
	}
	found := resp.Responses[1].GetResponseRange()
	holder := found.Kvs[0]
	if ses.is(holder) {
		answer, _ := s.taken(c, ses, revision) // nothing ends the session yet
		return answer, nil
	}
	s.mu.Lock()
	ses.revision, ses.place = revision, found.Count-1
	if s.earOf(c.Waiter) == e && s.waiting[c.Waiter] == ses {
		var keep context.Context
		keep, ses.stop = context.WithCancel(e.ctx)
		e.keeping.Go(func() { s.keepPlace(keep, c, ses, e) })
		e.keeping.Go(func() { s.watch(keep, line, c, ses, revision, e) })
	}
	s.mu.Unlock()
	return s.refused(ctx, c, ses, holder, found.Count), nil
}

// come takes the lock for a waiter if it is the first in line.
func (s *Store) come(ctx context.Context, c store.Claim, ses *session) (store.Answer, error) {
	holder, keys, err := s.renewed(ctx, c.Key, ses)
	if err != nil {
		return store.Answer{}, err
	}
	s.mu.Lock()
	revision, e := ses.revision, s.earOf(c.Waiter)
	s.mu.Unlock()
	switch {
	case ses.is(holder):
		// Where the session was taken for ended meanwhile, the lock is none any more.
		if answer, ok := s.taken(c, ses, holder.CreateRevision); ok {
			return answer, nil
		}
	case holder != nil && holder.CreateRevision < revision:
		return s.refused(ctx, c, ses, holder, keys), nil
	case holder != nil && revision == 0 && e != nil: // it is not known whether it has joined
		return s.stand(ctx, c, ses, e)
	}
	// Its session has ended, or its key was deleted: it has no place any more.
	s.drop(ctx, c, ses)
	if e == nil {
		return s.try(ctx, c)
	}
	return s.join(ctx, c, e)
}

// refused says who has the lock, and where a waiter stands.
func (s *Store) refused(ctx context.Context, c store.Claim, ses *session, holder *mvccpb.KeyValue, keys int64) store.Answer {
	a := s.refusal(ctx, c, holder)
	s.mu.Lock()
	defer s.mu.Unlock()
	ses.place = max(1, min(ses.place, keys-1))
	a.Place, a.Ticket, a.Waited = int(ses.place), ses.revision, time.Since(ses.joined)
	return a
}

// Leave implements [store.Store].
func (s *Store) Leave(ctx context.Context, _, waiter, _ string, _ store.Line) (*store.Turn, error) {
	s.mu.Lock()
	ses := s.waiting[waiter]
	if ses != nil {
		ses.leave()
	}
	s.mu.Unlock()
	if ses == nil {
		return nil, nil //nolint:nilnil // it is in no line
	}
	ctx, cancel := cleanup(ctx)
	defer cancel()
	if err := s.end(ctx, ses); err != nil {
		return nil, failed(ctx, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting[waiter] == ses {
		delete(s.waiting, waiter)
	}
	return nil, nil //nolint:nilnil // the next one sees it by itself
}

// Called implements [store.Store]. Nobody in these lines is called by hand.
func (s *Store) Called(context.Context, string, store.Turn) error { return nil }

// keepPlace renews the session of a waiter until ctx ends. If the session ends first, the
// waiter is called, to join anew.
//
// The client's own KeepAlive would not do: it has one connection for all sessions, and takes
// them for ended while a member hangs.
func (s *Store) keepPlace(ctx context.Context, c store.Claim, ses *session, e *ear) {
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
				e.call(c.Waiter)
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

// expire drops a session that has ended, or seems to have, while its waiter stood in line;
// false if that one has the lock by it, or has left.
func (s *Store) expire(ctx context.Context, c store.Claim, ses *session) bool {
	s.mu.Lock()
	waits := s.waiting[c.Waiter] == ses
	if waits {
		delete(s.waiting, c.Waiter) // from here on it cannot get the lock by it
		ses.leave()
	}
	s.mu.Unlock()
	if waits {
		s.drop(ctx, c, ses)
	}
	return waits
}

// watch calls a waiter when its turn has come, unless ctx ends first.
func (s *Store) watch(ctx context.Context, line string, c store.Claim, ses *session, revision int64, e *ear) {
	for ctx.Err() == nil {
		before, at, err := s.before(ctx, line, revision)
		if err == nil && before == "" {
			s.mu.Lock()
			ses.called = time.Now()
			s.mu.Unlock()
			e.call(c.Waiter)
			return
		}
		s.await(ctx, before, at)
	}
}

// before returns the key that was created last before a revision, "" for none, and the
// revision of etcd at which that was so.
func (s *Store) before(ctx context.Context, line string, revision int64) (key string, at int64, _ error) {
	ctx, cancel := context.WithTimeout(ctx, longestCall)
	defer cancel()
	resp, err := ask(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return s.client.Get(ctx, line, append(clientv3.WithLastCreate(), clientv3.WithMaxCreateRev(revision-1))...)
	})
	if err != nil {
		return "", 0, err
	}
	if len(resp.Kvs) > 0 {
		key = string(resp.Kvs[0].Key)
	}
	return key, resp.Header.Revision, nil
}

// await returns when a key has been deleted after the revision at, or when it is time to
// look again: after a moment where the key is not known or cannot be watched, and after some
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
