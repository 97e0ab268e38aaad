package etcdlock

import (
	"context"
	"time"

	"github.com/sidingq/siding/internal/store"
)

// Age has d pass for what s knows of its sessions.
func Age(s *Store, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.swept = s.swept.Add(-d)
	for _, ses := range s.waiting {
		if !ses.left.IsZero() {
			ses.left = ses.left.Add(-d)
		}
	}
	for _, ses := range s.held {
		ses.until = ses.until.Add(-d)
	}
}

// Known is how many sessions s knows.
func Known(s *Store) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(len(s.held), len(s.owners)) + len(s.waiting)
}

// LeaveAndTake has a waiter leave the wait queue just before it would get the lock, and
// reports whether it gets the lock.
func LeaveAndTake(s *Store, c store.Request) (took bool) {
	s.mu.Lock()
	ses := s.waiting[c.Waiter]
	ses.leave()
	s.mu.Unlock()
	_, took = s.taken(c, ses, ses.revision)
	return took
}

// ExpireAndTake drops the session of a waiter just before the waiter would get the lock, and
// reports whether it gets the lock.
func ExpireAndTake(ctx context.Context, s *Store, c store.Request) (expired, took bool) {
	s.mu.Lock()
	ses := s.waiting[c.Waiter]
	s.mu.Unlock()
	expired = s.expire(ctx, c, ses)
	_, took = s.taken(c, ses, ses.revision)
	return expired, took
}

// TakeAndExpire does it the other way round.
func TakeAndExpire(ctx context.Context, s *Store, c store.Request) (took, expired bool) {
	s.mu.Lock()
	ses := s.waiting[c.Waiter]
	s.mu.Unlock()
	_, took = s.taken(c, ses, ses.revision)
	return took, s.expire(ctx, c, ses)
}

// ExpireSlowly has the session of a waiter end, and drops it only after the waiter has asked again.
func ExpireSlowly(ctx context.Context, s *Store, c store.Request, again func()) {
	s.mu.Lock()
	ses := s.waiting[c.Waiter]
	delete(s.waiting, c.Waiter)
	ses.leave()
	s.mu.Unlock()
	_ = s.end(ctx, ses)
	again()
	s.drop(ctx, c, ses)
}
