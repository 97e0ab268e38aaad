package lock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/lock"
)

// reserved takes the lock, lets waiters join, and hands it off to the first.
func (s *setup) reserved(waiters ...string) {
	s.Helper()
	held := s.take("")
	s.join(waiters...)
	s.handOff(held, waiters[0])
}

// TestReservationExcludes newcomers, those who are queued, and callers without a
// name, until its waiter comes.
func TestReservationExcludes(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		s.reserved("w1", "w2")
		for _, w := range []string{"newcomer", "w2", "", "w", "w11"} {
			if busy := s.refuse(w); busy.Holder != "the next in the wait queue" || busy.Foreign {
				s.Errorf("%q: want it refused for the next in the wait queue, have %+v", w, busy)
			}
		}
		s.wantTTL(s.key, time.Second, time.Minute)
		held := s.take("w1")
		s.wantQueue("w2", "newcomer", "w", "w11")
		s.handOff(held, "w2")
	})
}

// TestReservationIsForAnyName that a waiter may have.
func TestReservationIsForAnyName(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		for _, name := range []string{"7:default:5f1c2a", "::", " ", "a\nb", "%d*", "Größe", "siding-reserved:x:1:y", "{x}", "\xff"} {
			s.reserved(name)
			s.join("other")
			held := s.take(name)
			s.wantQueue("other")
			s.leave("other")
			s.release(held)
		}
	})
}

// TestReservationExpires: nobody comes within the hand-off timeout. Then the next who asks
// takes the lock, whoever is queued. The release of that one wakes the first again.
func TestReservationExpires(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		s = s.with(lock.Config{HandoffTimeout: 500 * time.Millisecond}) // and a slow machine sees the last one
		s.reserved("w1", "w2")
		var held *lease.Lease
		err := poll.Until(s.Context(), func() error {
			var err error
			held, err = s.ask("newcomer")
			return err
		})
		if err != nil {
			s.Fatal(err)
		}
		s.wantQueue("w2") // the newcomer had joined, and holds now
		s.handOff(held, "w2")
	})
}

// TestExpiredReservationIsForOneOnly: the mark that an expired reservation leaves ends with the next
// acquisition, in whatever way that one ends.
func TestExpiredReservationIsForOneOnly(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		for _, first := range []string{"newcomer", "w2", ""} {
			s.reserved("w1", "w2", "w3")
			s.expire()
			s.take(first)
			s.join("w3")
			s.expire() // it died
			_ = s.refuse("late")
			next := "w2"
			if first == next {
				next = "w3"
			}
			s.wantNext(next)
			s.rdb.Del(s.Context(), s.key, s.fence, s.row)
		}
	})
}

// TestCalledTooLate: whoever comes next takes the lock, and the one for whom it was kept joins at the end. So it is with a
// reservation on arrival.
func TestCalledTooLate(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		s.reserved("w1", "w2")
		s.wantQueue("w2")
		s.join("w2") // still kept for w1
		s.expire()
		s.take("w2")
		if busy := s.refuse("w1"); busy.Position != 1 {
			s.Errorf("want w1 to have joined anew, have %+v", busy)
		}
		s.expire()
		_ = s.refuse("newcomer")
		s.wantNext("w1")
		s.expire()
		held := s.take("newcomer")
		s.wantQueue()
		s.handOff(held, "")
	})
}

// TestReservedWaiterLeaves: the lock goes to the next who waits, one by one, until nobody does.
func TestReservedWaiterLeaves(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		s.reserved(names(4)...)
		s.leave("w1")
		s.leave("w1") // the answer may have been lost
		s.wantNext("w2")
		s.wantQueue("w3", "w4")
		s.wantTTL(s.key, 59*time.Second, time.Minute)
		s.leave("w4") // one for whom it is not reserved
		s.wantNext("w2")
		s.leave("w2")
		held := s.take("w3")
		s.leave("w3") // it holds the lock, and does not wait
		s.join("w5")
		s.handOff(held, "w5")
		s.leave("w5")
		s.wantFree()
		s.wantQueue()
	})
}

// TestReleaseOfALostLock reserves nothing. That is an error if somebody else has held the lock
// since, even if that one has released it.
func TestReleaseOfALostLock(t *testing.T) {
	t.Parallel()
	type row struct {
		since  func(*setup)
		nobody bool
	}
	onEachOf(t, map[string]row{
		"nobody since":       {func(*setup) {}, true},
		"held by another":    {func(s *setup) { s.take("") }, false},
		"another has been":   {func(s *setup) { s.take(""); s.expire() }, false},
		"a foreign holder":   {func(s *setup) { s.rdb.Set(s.Context(), s.key, "8f3a60", time.Minute) }, false},
		"the fence is gone":  {func(s *setup) { s.rdb.Del(s.Context(), s.fence) }, false},
		"kept for a waiter":  {func(s *setup) { s.take(""); s.expire(); _ = s.refuse("w2") }, false},
		"kept, nobody since": {func(s *setup) { _ = s.refuse("w2") }, true},
	}, func(s *setup, tc row) {
		held := s.take("")
		s.join("w1")
		s.expire()
		tc.since(s)
		before := s.value()
		if err := held.Release(s.Context()); tc.nobody && err != nil || !tc.nobody && !errors.Is(err, lock.ErrLost) {
			s.Errorf("want ErrLost if somebody has held it since, have %v", err)
		}
		if have := s.value(); have != before {
			s.Errorf("want the lock left as it was, %q, have %q", before, have)
		}
	})
}

// TestReleasePastTheDeadline: Redis still has the key. So the first waiter is woken at once, and
// not after the TTL. The holder hears of its loss.
func TestReleasePastTheDeadline(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		s = s.with(lock.Config{TTL: 20 * time.Second, SafetyMargin: 19500 * time.Millisecond, RenewEvery: 200 * time.Millisecond})
		held := s.take("")
		s.join("w1")
		abandon(held)
		_ = sleep.For(s.Context(), time.Second)
		if !held.Deadline().IsZero() {
			s.Error("want no valid lease past its deadline")
		}
		wantLost(s, "release", held.Release(s.Context()))
		s.wantNext("w1")
	})
}
