package lock_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
)

// names returns w1 to wn.
func names(n int) []string {
	waiters := make([]string, n)
	for i := range waiters {
		waiters[i] = fmt.Sprintf("w%d", i+1)
	}
	return waiters
}

// wantQueue checks who is in the wait queue, the head first.
func (s *setup) wantQueue(want ...string) {
	s.Helper()
	have := s.queue()
	expect.That(s, slices.Equal(have, want), "want in the wait queue %q, have %q", want, have)
}

// TestWaitQueueIsFIFO has 50 waiters that are all woken and all come. They get the lock in the
// order in which they joined.
func TestWaitQueueIsFIFO(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		held := s.take("")
		waiters := names(50)
		for i, w := range waiters {
			position := s.refuse(w).Position
			expect.Need(s, position == i+1, "want position %d, have %d", i+1, position)
		}
		var served []string
		for range waiters {
			s.release(held)
			_, next, _ := strings.Cut(s.value(), s.name("w"))
			served = append(served, "w"+next)
			held = s.take("w" + next)
			expect.Need(s, !slices.Contains(s.queue(), "w"+next), "want the holder w%s in no wait queue", next)
		}
		expect.That(s, slices.Equal(served, waiters), "want them served as %v, have %v", waiters, served)
		s.handOff(held, "")
		expect.Equal(s, "what a free lock holds", s.value(), "")
	})
}

// TestPositionAndTicketAreKept over refusals, in whatever order the waiters come.
func TestPositionAndTicketAreKept(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		held := s.take("")
		waiters := names(5)
		tickets := make([]int64, len(waiters))
		for i, w := range waiters {
			busy := s.refuse(w)
			tickets[i] = busy.Ticket
			if i > 0 && tickets[i] <= tickets[i-1] {
				s.Errorf("want a ticket above %d, have %d", tickets[i-1], tickets[i])
			}
		}
		for _, i := range []int{4, 0, 2, 2, 1, 3, 0} {
			busy := s.refuse(waiters[i])
			expect.That(s, busy.Position == i+1 && busy.Ticket == tickets[i],
				"%s: want position %d and ticket %d, have %d and %d", waiters[i], i+1, tickets[i], busy.Position, busy.Ticket)
		}
		s.wantQueue(waiters...)
		s.leave("w2")
		if busy := s.refuse("w3"); busy.Position != 2 || busy.Ticket != tickets[2] {
			s.Errorf("want w3 moved up with its ticket, have position %d and ticket %d", busy.Position, busy.Ticket)
		}
		s.release(held)
	})
}

// TestTicketsWhenTheClockStepsBack: who comes later stands behind.
func TestTicketsWhenTheClockStepsBack(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		held := s.take("")
		s.join("w1")
		ahead := float64(time.Now().Add(time.Hour).UnixMicro())
		s.rdb.ZIncrBy(s.Context(), s.row, ahead-s.rdb.ZScore(s.Context(), s.row, s.name("w1")).Val(), s.name("w1"))
		busy := s.refuse("w2")
		expect.That(s, busy.Position == 2 && busy.Ticket == int64(ahead)+1, "want position 2 and the ticket after %.0f, have %+v", ahead, busy)
		s.release(held)
	})
}

// TestCallersWithoutANameAreNotQueued.
func TestCallersWithoutANameAreNotQueued(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		s.take("")
		_ = s.refuse("")
		s.wantQueue()
		s.join("w1")
		s.expire()
		// A free lock is theirs, whoever waits, and whoever waits keeps its place.
		held := s.take("")
		s.wantQueue("w1")
		s.handOff(held, "w1")
	})
}

func TestLeave(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		held := s.take("")
		s.join(names(3)...)
		for _, w := range []string{"w1", "w1", "unknown", ""} {
			s.leave(w)
		}
		s.wantQueue("w2", "w3")
		first := s.refuse("w2").Ticket
		if busy := s.refuse("w1"); busy.Position != 3 || busy.Ticket <= first {
			s.Errorf("want a waiter that left to join at the end with a new ticket, have %+v", busy)
		}
		s.handOff(held, "w2")
		s.on("never heard of").leave("w1") // no error
	})
}

// TestHolderDiedAndANewcomerIsFirst: the lock is free, others are queued, and a
// newcomer is first on arrival. The lock is not for it, nor for one who is queued behind others.
func TestHolderDiedAndANewcomerIsFirst(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		s.take("")
		s.join("w1")
		second := s.refuse("w2")
		s.expire()
		if busy := s.refuse("w2"); busy.Position != 1 || busy.Ticket != second.Ticket {
			s.Errorf("want w2's ticket kept, and its place behind w1 who is called, have %+v", busy)
		}
		s.wantNext("w1")
		s.wantTTL(s.key, 59*time.Second, time.Minute)
		busy := s.refuse("newcomer")
		expect.That(s, busy.Position == 2 && busy.Holder == "the next in the wait queue" && !busy.Foreign && busy.Since.IsZero(),
			"want a position behind the others and a lock kept for the next, have %+v", busy)
		s.wantNext("w1")
		s.take("w1")
		s.expire()
		_ = s.refuse("another")
		s.wantNext("w2")
		s.wantQueue("newcomer", "another")
		s.take("w2")
		s.expire()
		held := s.take("newcomer") // the head, whose fallback time came first
		s.wantQueue("another")
		s.handOff(held, "another")
	})
}

// TestWaitQueueOutlivesTheLongestFallbackTime: waiters come by themselves only when the lock's time
// is over. The wait queue must be there until then, and so must the mark that a reservation leaves.
func TestWaitQueueOutlivesTheLongestFallbackTime(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		s = s.with(lock.Config{TTL: 24 * time.Hour, HandoffTimeout: 24 * time.Hour})
		held := s.take("")
		s.join("w1")
		s.wantTTL(s.row, 25*time.Hour, 100*time.Hour)
		s.rdb.PExpire(s.Context(), s.row, time.Minute)
		s.join("w1") // each refusal prolongs it
		s.wantTTL(s.row, 25*time.Hour, 100*time.Hour)
		s.handOff(held, "w1")
		s.wantTTL(s.key, 23*time.Hour, 24*time.Hour)
		s.wantTTL(s.fence, 25*time.Hour, 100*time.Hour)
	})
}

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
		err := expect.Until(s.Context(), func() error {
			var err error
			held, err = s.ask("newcomer")
			return err
		})
		expect.OK(s, err)
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
		expect.Equal(s, "the lock", s.value(), before)
	})
}

// TestReleasePastTheDeadline: Redis still has the key. So the first waiter is woken at once, and
// not after the TTL. The holder hears of its loss.
func TestReleasePastTheDeadline(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		s = s.with(lock.Config{TTL: 20 * time.Second, SafetyMargin: 17 * time.Second, RenewEvery: 200 * time.Millisecond})
		held := s.take("")
		s.join("w1")
		abandon(held)
		expect.Eventually(s.T, "the deadline past", func() bool { return held.Deadline().IsZero() })
		wantLost(s, "release", held.Release(s.Context()))
		s.wantNext("w1")
	})
}
