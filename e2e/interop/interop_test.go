package interop_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
)

// TestExclude: the holder of the lock excludes the other until the release.
func TestExclude(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		lease := s.weTake()
		s.peerIsRefused()
		s.release(lease)

		h := s.peerTakes()
		if busy := s.weAreRefused(); busy.Remaining <= ttl/2 || busy.Remaining > ttl || !busy.Since.IsZero() {
			s.Errorf("want about %v left of a lock of unknown age, have %v since %v", ttl, busy.Remaining, busy.Since)
		}
		s.release(h)

		s.release(s.weTake())
	})
}

// TestOurLateCall: our lock expires, and the peer takes it. Our renewal and release then leave the
// peer's lock alone.
func TestOurLateCall(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		for name, late := range map[string]func(*lock.Lease, context.Context) error{
			"renew":   (*lock.Lease).Renew,
			"release": (*lock.Lease).Release,
		} {
			lease := s.weTake()
			s.expire()
			h := s.peerTakes()
			s.shorten(ttl / 2)
			if err := late(lease, s.Context()); !errors.Is(err, lock.ErrLost) {
				s.Errorf("%s: want ErrLost, have %v", name, err)
			}
			_ = s.weAreRefused()
			if left := s.left(); left > ttl/2 {
				s.Errorf("%s: want the peer's lock as it was, have it prolonged to %v", name, left)
			}
			s.release(h)
		}
	})
}

// TestPeersLateCall: the peer's lock expires, and we take it. The peer's extension and release then
// leave our lock alone.
func TestPeersLateCall(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		h := s.peerTakes()
		s.expire()
		lease := s.weTake()
		s.shorten(ttl / 2)
		if err := h.Extend(s.Context()); !s.IsLost(err) {
			s.Errorf("extend: want the peer told that it lost its lock, have %v", err)
		}
		if err := h.Release(s.Context()); !s.IsLost(err) {
			s.Errorf("release: want the peer told that it lost its lock, have %v", err)
		}
		s.peerIsRefused()
		if left := s.left(); left > ttl/2 {
			s.Errorf("want our lock as it was, have it prolonged to %v", left)
		}
		s.release(lease)
	})
}

// TestProlong: after somebody was refused the lock, its holder can still prolong it.
func TestProlong(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		const short = 10 * time.Second
		h := s.peerTakes()
		s.shorten(short)
		if busy := s.weAreRefused(); busy.Remaining > short {
			s.Errorf("want at most %v left, have %v", short, busy.Remaining)
		}
		if err := h.Extend(s.Context()); err != nil {
			s.Errorf("want the peer's lock extended, have %v", err)
		}
		if busy := s.weAreRefused(); busy.Remaining <= short {
			s.Errorf("want about %v left, have %v", ttl, busy.Remaining)
		}
		s.release(h)

		lease := s.weTake()
		s.shorten(short)
		s.peerIsRefused()
		if err := lease.Renew(s.Context()); err != nil {
			s.Errorf("want our lock renewed, have %v", err)
		}
		s.peerIsRefused()
		if left := s.left(); left <= short {
			s.Errorf("want about %v left, have %v", ttl, left)
		}
		s.release(lease)
	})
}

// TestWaitForPeer: a peer's release wakes nobody, so our waiter comes by itself.
func TestWaitForPeer(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		ctx, cancel := context.WithTimeout(s.Context(), patience)
		defer cancel()
		h := s.peerTakes()
		type outcome struct {
			lease *lock.Lease
			err   error
		}
		got := make(chan outcome, 1)
		go func() {
			lease, err := s.locker.Acquire(ctx, s.res, &lock.Options{Wait: lock.Forever})
			got <- outcome{lease, err}
		}()
		expect.Eventually(s.T, "one of us in the wait queue", func() bool { return s.rdb.ZCard(ctx, "{"+s.key+"}:queue").Val() == 1 })
		if err := h.Extend(ctx); err != nil {
			s.Errorf("want the peer's lock extended, have %v", err)
		}
		if len(got) > 0 {
			s.Fatal("want us waiting while the peer holds the lock")
		}
		s.release(h)
		o := <-got
		if o.err != nil {
			s.Fatalf("want the lock after the peer, have %v", o.err)
		}
		s.peerIsRefused()
		s.release(o.lease)
		s.release(s.peerTakes())
	})
}
